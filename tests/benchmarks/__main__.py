"""What a call costs: ``python tests/benchmarks`` prints a Markdown table of ratios.

Each row sums its inputs (y = x + 1 for a single one) in float32. Each figure is the fastest of the
rounds in which all contestants take turns, divided by that of ONNX Runtime's own operator.
"""

from __future__ import annotations

import argparse
import functools
import platform
from collections.abc import Callable
from importlib.metadata import version

import compiled
import numpy as np
import onnx
import onnx.reference
import onnxruntime
import onnxruntime_extensions
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from rich.console import Console
from rich.progress import track

import pyops
from pyops import onnx_op

SIZES = (1, 10**3, 10**5, 10**6, 10**7)
LONGEST = 10**6  # elements at which onnxruntime-extensions' own onnx_op takes about a tenth of a second
ONE = np.float32(1)

Array = NDArray[np.float32]
Call = Callable[[], object]


@onnx_op("bench::Sum1")
def sum_1(x0: Array) -> Array:
    """Sum into an array that NumPy allocates, as the next two do."""
    return add_up(x0)


@onnx_op("bench::Sum2")
def sum_2(x0: Array, x1: Array) -> Array:
    """As `sum_1`."""
    return add_up(x0, x1)


@onnx_op("bench::Sum8")
def sum_8(x0: Array, x1: Array, x2: Array, x3: Array, x4: Array, x5: Array, x6: Array, x7: Array) -> Array:
    """As `sum_1`."""
    return add_up(x0, x1, x2, x3, x4, x5, x6, x7)


@onnx_op("bench::SumOut")
def writing(*xs: NDArray[np.float32], out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """Sum into ONNX Runtime's buffer."""
    return add_up(*xs, out=out)


@writing.register_shape_inference
def _(*xs: pyops.shapes.TensorSpec) -> pyops.shapes.TensorSpec:
    return xs[0]


def add_up(*xs: Array, out: Array | None = None) -> Array:
    """Sum arrays, or add 1 to a single one."""
    if len(xs) == 1:
        return np.add(xs[0], ONE, out=out)
    total = np.add(xs[0], xs[1], out=out)
    for x in xs[2:]:
        np.add(total, x, out=total)
    return total


def model(op_type: str, domain: str, count: int) -> onnx.ModelProto:
    """A model of one node with `count` inputs, or of ONNX's own ``Add`` of 1."""
    names = [f"x{i}" for i in range(count)]
    single = domain == "" and count == 1
    node = helper.make_node("Add" if single else op_type, [*names, "one"] if single else names, ["y"], domain=domain)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in names]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    constants = [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])] if single else []
    graph = helper.make_graph([node], "sum", inputs, [output], constants)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("bench", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def options(threads: int) -> onnxruntime.SessionOptions:
    """Session options with a number of threads per operator."""
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = threads
    return made


@functools.cache
def declare_shipped(count: int) -> None:
    """Declare the sum with onnxruntime-extensions' own ``onnx_op``."""
    code = onnxruntime_extensions.PyCustomOpDef
    op_type, inputs = f"shipped{count}::Sum", [code.dt_float] * count
    onnxruntime_extensions.onnx_op(op_type=op_type, inputs=inputs, outputs=[code.dt_float])(lambda *xs: add_up(*xs))


@functools.cache
def writing_session(count: int, threads: int) -> pyops.InferenceSession:
    """A session that sums into ONNX Runtime's buffer."""
    return pyops.InferenceSession(model("SumOut", "bench", count), options(threads))


@functools.cache
def shipped(count: int, threads: int) -> onnxruntime.InferenceSession:
    """A session in which onnxruntime-extensions' own ``onnx_op`` sums."""
    declare_shipped(count)
    made = options(threads)
    made.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    proto = model("Sum", f"shipped{count}", count)
    proto.opset_import.append(helper.make_opsetid(f"shipped{count}", 1))
    return onnxruntime.InferenceSession(proto.SerializeToString(), made)


@functools.cache
def torch_op(count: int) -> Callable[..., torch.Tensor]:
    """A plain ``torch.library.custom_op`` around the same NumPy function."""
    parameters = ", ".join(f"Tensor x{i}" for i in range(count))

    def kernel(*xs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(add_up(*(x.numpy() for x in xs)))

    return torch.library.custom_op(f"bench::sum{count}", kernel, mutates_args=(), schema=f"({parameters}) -> Tensor")


run = onnxruntime.InferenceSession.run


@functools.cache
def contestants(count: int, threads: int, engine: str) -> Callable[[list[Array]], dict[str, Call]]:
    """A function that returns, for given inputs, a call per contestant; the sessions are made only once."""
    builtin = onnxruntime.InferenceSession(model("Sum", "", count).SerializeToString(), options(threads))
    ours = pyops.InferenceSession(model(f"Sum{count}", "bench", count), options(threads), engine=engine)
    in_torch = torch_op(count)
    reference = onnx.reference.ReferenceEvaluator(model("Sum", "", count))
    ours_reference = onnx.reference.ReferenceEvaluator(
        model(f"Sum{count}", "bench", count), new_ops=pyops.reference_ops()
    )

    def calls(xs: list[Array]) -> dict[str, Call]:
        feed = {f"x{i}": x for i, x in enumerate(xs)}
        tensors = [torch.from_numpy(x) for x in xs]
        # The extensions engine has no `out=`, and takes the place of onnxruntime-extensions' own hook.
        writing_too: dict[str, Call] = {}
        if engine == "native":
            ours_out = writing_session(count, threads)
            writing_too["pyops, `out=`"] = lambda: ours_out.run(None, feed)
        made: dict[str, Call] = {
            "ONNX Runtime": lambda: run(builtin, None, feed),
            "pyops": lambda: ours.run(None, feed),
            **writing_too,
            "NumPy alone": lambda: add_up(*xs),
            "`torch.library`": lambda: in_torch(*tensors),
            "ReferenceEvaluator": lambda: reference.run(None, feed),
            "pyops, reference engine": lambda: ours_reference.run(None, feed),
        }
        if xs[0].size <= LONGEST and engine == "native":
            as_shipped = shipped(count, threads)
            made["onnxruntime-extensions"] = lambda: as_shipped.run(None, feed)
        return made

    return calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python tests/benchmarks", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="elements per input")
    parser.add_argument(
        "--inputs", type=int, nargs="+", choices=(1, 2, 8), default=(1, 2, 8), help="inputs of the operator"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=(1, 2, 4), help="intra_op_num_threads")
    parser.add_argument("--engine", choices=("native", "extensions"), default="native", help="of pyops")
    parser.add_argument("--rounds", type=int, default=30, help="rounds per figure")
    arguments = parser.parse_args()
    rows = [(i, t, n) for i in arguments.inputs for t in arguments.threads for n in arguments.sizes]
    header: list[str] = []
    for inputs, threads, size in track(rows, "measuring", console=Console(stderr=True)):
        xs = [np.random.default_rng(i).random(size, np.float32) for i in range(inputs)]
        measured = compiled.fastest(contestants(inputs, threads, arguments.engine)(xs), arguments.rounds)
        if not header:
            header = list(measured)
            packages = ", ".join(
                f"{p} {version(p)}" for p in ("onnxruntime", "onnxruntime-extensions", "numpy", "torch")
            )
            print(f"Python {platform.python_version()}, {packages}, {platform.machine()}\n")
            print(f"| inputs | threads | elements | {' | '.join(header)} |\n|{'---|' * (len(header) + 3)}")
        base = measured["ONNX Runtime"]
        cells = [f"{base * 1e6:.1f} µs"] + [
            f"{measured[name] / base:.2f}" if name in measured else "-" for name in header[1:]
        ]
        print(f"| {inputs} | {threads} | {size:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
