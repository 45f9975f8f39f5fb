"""Print what filled nodes cost, beside ONNX Runtime's kernels of another type: ``python tests/benchmarks/filling.py``.

First a table of operators at 100,000 elements, then a transformer that was converted to bfloat16 as a whole.
"""

import time
import warnings

import ml_dtypes
import numpy as np
import onnx
import onnxruntime

import pyops
from pyops._core.models.model import load_model
from pyops._filling.filling import fill

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
F32, F64, I64, U64 = map(np.dtype, (np.float32, np.float64, np.int64, np.uint64))
VECTOR, MATRIX, IMAGE = (100_000,), (316, 316), (1, 10, 100, 100)
# Operator, its attributes, the shape of each input, the type that ONNX Runtime lacks, and the type to compare with.
ROWS = [
    *((name, {}, [VECTOR] * 2, BFLOAT16, F32) for name in ("Add", "Mul", "Div", "Pow")),
    *((name, {}, [VECTOR], BFLOAT16, F32) for name in ("Relu", "Exp", "Tanh", "Sigmoid", "Gelu", "Erf", "Sqrt")),
    ("MatMul", {}, [MATRIX] * 2, BFLOAT16, F32),
    ("Gemm", {}, [MATRIX] * 2, BFLOAT16, F32),
    ("Softmax", {}, [MATRIX], BFLOAT16, F32),
    ("ReduceMean", {}, [MATRIX], BFLOAT16, F32),
    ("Conv", {}, [IMAGE, (10, 10, 3, 3)], BFLOAT16, F32),
    ("MaxPool", {"kernel_shape": [2, 2]}, [IMAGE], BFLOAT16, F32),
    *((name, {}, [VECTOR], F64, F32) for name in ("Acos", "Asinh", "Atan", "Elu", "Erf", "Selu", "Softplus", "Tan")),
    ("Conv", {}, [IMAGE, (10, 10, 3, 3)], F64, F32),
    ("AveragePool", {"kernel_shape": [2, 2]}, [IMAGE], F64, F32),
    ("InstanceNormalization", {}, [IMAGE, (10,), (10,)], F64, F32),
    ("Det", {}, [MATRIX], F64, F32),
    ("Gemm", {}, [MATRIX] * 2, I64, F32),
    ("ReduceSum", {}, [MATRIX], U64, I64),
    ("NonZero", {}, [VECTOR], U64, I64),
]


def model(name: str, attributes: dict[str, object], shapes: list[tuple[int, ...]], dtype: np.dtype) -> onnx.ModelProto:
    code = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    names = [f"x{index}" for index in range(len(shapes))]
    node = onnx.helper.make_node(name, names, ["y"], **attributes)
    inputs = [
        onnx.helper.make_tensor_value_info(*item) for item in zip(names, [code] * len(names), shapes, strict=True)
    ]
    result = onnx.TensorProto.INT64 if name == "NonZero" else code
    output = onnx.helper.make_tensor_value_info("y", result, None)
    graph = onnx.helper.make_graph([node], name, inputs, [output])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)], ir_version=10)


def values(shapes: list[tuple[int, ...]], dtype: np.dtype) -> dict[str, np.ndarray]:
    """Return inputs for `model`."""
    generator = np.random.default_rng(0)
    scale = 10 if dtype.kind in "iu" else 1
    return {
        f"x{index}": (generator.uniform(0.1, 0.9, shape) * scale).astype(dtype) for index, shape in enumerate(shapes)
    }


def best(session: pyops.InferenceSession, feeds: dict[str, np.ndarray]) -> float:
    """Return the shortest of some runs, in milliseconds."""
    times = []
    began = time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - began < 0.3 and len(times) < 200):
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def transformer(options: onnxruntime.SessionOptions) -> str:
    """Compare a transformer in bfloat16 with itself in float32, and its results with torch's, in one line."""
    import torch
    from export import Layer

    import exporters

    torch.manual_seed(0)
    module, x = torch.nn.Sequential(*(Layer(256, 4) for _ in range(4))).eval(), torch.randn(1, 128, 256)
    wide = exporters.export(module, (x,), verbose=False).model_proto
    expected = module(x)
    narrow = exporters.export(module.bfloat16(), (x.bfloat16(),), verbose=False).model_proto
    sessions = [pyops.InferenceSession(proto, options, fill_missing=True) for proto in (wide, narrow)]
    (name,) = (item.name for item in sessions[0].get_inputs())
    feeds = [{name: x.numpy().astype(dtype)} for dtype in (np.float32, BFLOAT16)]
    seconds = [best(*pair) for pair in zip(sessions, feeds, strict=True)]
    found = sessions[1].run(None, feeds[1])[0].astype(np.float32)
    errors = [
        np.abs(other - expected.detach().numpy()).max()
        for other in (found, module(x.bfloat16()).float().detach().numpy())
    ]
    return (
        f"four layers of 256 for 128 tokens: {seconds[0]:.1f} ms in float32, {seconds[1]:.1f} ms in bfloat16, "
        f"{seconds[1] / seconds[0]:.2f} times; "
        f"largest difference from float32: {errors[0]:.3f}, torch's own {errors[1]:.3f}"
    )


def main() -> None:
    warnings.simplefilter("ignore", pyops.errors.FilledNodeWarning)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    print("| operator | type | by | ms | type | ms | ratio |\n|---|---|---|---|---|---|---|")
    for name, attributes, shapes, dtype, other in ROWS:
        made = model(name, attributes, shapes, dtype)
        by = fill(load_model(made), {}).nodes[0].by
        time_of = best(pyops.InferenceSession(made, options, fill_missing=True), values(shapes, dtype))
        lacking_nothing = pyops.InferenceSession(model(name, attributes, shapes, other), options)
        plain = best(lacking_nothing, values(shapes, other))
        row = (name, dtype, by, f"{time_of:.2f}", other, f"{plain:.2f}", f"{time_of / plain:.1f}")
        print("|", " | ".join(map(str, row)), "|", flush=True)
    print(f"\n{transformer(options)}")


if __name__ == "__main__":
    main()
