"""Compile kernels of integer arithmetic and print what they give for edge values.

It reads a JSON list of the cases of `test_integer_arithmetic`. For each, it prints a line before the kernel runs and
one with the results, so that the reader knows the one that ended the process.
"""

import json
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.testing import Sample


def edge_values(dtype: str) -> NDArray[Any]:
    """Return the values around zero, around both ends of a type's range and around its powers of two."""
    limits = np.iinfo(dtype)
    around = (0, limits.min, limits.max, 1 << (limits.bits // 2), limits.bits, -limits.bits, 100)
    near = {value + offset for value in around for offset in (-2, -1, 0, 1, 2)}
    return np.array(sorted(value for value in near if limits.min <= value <= limits.max), dtype)


def pairs(dtype: str, shifts: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each edge value with each; if they are shifted, with numbers of bits that there are."""
    values = edge_values(dtype)
    others = np.arange(np.iinfo(dtype).bits, dtype=dtype) if shifts else values
    return np.repeat(values, others.size), np.tile(others, values.size)


def main() -> None:
    for case in json.load(sys.stdin):
        print(json.dumps("runs"), flush=True)
        names: dict[str, Any] = {"np": np}
        exec(case["code"], names)
        kernel = names["kernel"]
        kernel.__annotations__ = {
            "x": NDArray[np.dtype(case["dtype"]).type],
            "y": NDArray[np.dtype(case["dtype"]).type],
            "return": NDArray[np.dtype(case["result"]).type],
        }
        x, y = pairs(case["dtype"], case["shifts"])
        try:
            if case["parallel"]:
                op = onnx_op("stress::Parallel", compile=True, parallel="(),()->()")(kernel)
                op.register_shape_inference(lambda x, y, result=case["result"]: x.like(dtype=np.dtype(result)))
                times = 1 + 100_000 // x.size
                sample = Sample(op, np.tile(x, times), np.tile(y, times))
                results = pyops.InferenceSession(sample.model()).run(None, sample.feed)[0][: x.size]
            else:
                results = onnx_op("stress::Kernel", compile=True)(kernel)(x, y)
        except pyops.errors.CompileError as error:
            print(json.dumps(str(error)[:1000]), flush=True)
        else:
            print(json.dumps(results.tolist()), flush=True)


if __name__ == "__main__":
    main()
