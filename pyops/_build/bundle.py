"""A folder with a library, its model, and programs in other languages that run them."""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import onnx

from .._schema.dtypes import DType, dtype_name, from_onnx
from ..errors import InputError
from .report import BuildReport

# Element types that the programs read and print: the constant of ONNX Runtime's header, C#'s type, Triton's.
_TYPES = {
    "float32": ("FLOAT", "float", "FP32"),
    "uint8": ("UINT8", "byte", "UINT8"),
    "int8": ("INT8", "sbyte", "INT8"),
    "uint16": ("UINT16", "ushort", "UINT16"),
    "int16": ("INT16", "short", "INT16"),
    "int32": ("INT32", "int", "INT32"),
    "int64": ("INT64", "long", "INT64"),
    "bool": ("BOOL", "bool", "BOOL"),
    "float64": ("DOUBLE", "double", "FP64"),
    "uint32": ("UINT32", "uint", "UINT32"),
    "uint64": ("UINT64", "ulong", "UINT64"),
}


@dataclass(frozen=True)
class Tensor:
    """An input or output of the model; each size is a number, or a name if the model leaves it open."""

    name: str
    dtype: DType
    sizes: tuple[int | str, ...]

    @property
    def macros(self) -> tuple[str, ...]:
        return tuple(str(size) if isinstance(size, int) else _macro(size) for size in self.sizes)


def tensors(proto: onnx.ModelProto) -> tuple[list[Tensor], list[Tensor]]:
    """Return the inputs and outputs of a model, as the programs of a bundle have them.

    Raises
    ------
    InputError
        An input or output is not a tensor, has no known rank, or has a type that the programs do not support.
    """
    constants = {item.name for item in proto.graph.initializer}
    inputs = [_tensor(item, "input") for item in proto.graph.input if item.name not in constants]
    return inputs, [_tensor(item, "output") for item in proto.graph.output]


def write_bundle(folder: Path, report: BuildReport, model: Path) -> None:
    """Write a library, its model and programs to a folder, which is created.

    Parameters
    ----------
    report : BuildReport
        The report on the library, which is copied to the folder unless it is there.
    model : Path
        The path of the model; `tensors` lists the errors that it may raise.
    """
    proto = onnx.load(model)
    inputs, outputs = tensors(proto)
    repository = folder / "triton" / model.stem
    (repository / "1").mkdir(parents=True, exist_ok=True)
    library = folder / Path(report.path).name
    if Path(report.path).resolve() != library.resolve():
        shutil.copyfile(report.path, library)
    onnx.save(proto, folder / model.name)  # with all its weights inside
    shutil.copyfile(folder / model.name, repository / "1" / "model.onnx")
    shutil.copyfile(library, repository / "1" / library.name)
    (repository / "config.pbtxt").write_text(_triton(model.stem, library.name, inputs, outputs))
    (folder / "model.h").write_text("\n".join(_header(model.name, library.name, inputs, outputs)))
    words = {
        "NAME": model.stem,
        "MODEL": model.name,
        "LIBRARY": library.name,
        "OPS": ", ".join(op.name for op in report.ops),
        "TARGET": report.target,
        "CPU": report.cpu,
        "OLDEST": report.oldest_onnxruntime,
        "INPUTS": "\n".join(map(_in_c_sharp, inputs)),
    }
    for source in files(__package__).joinpath("bundle").iterdir():
        text = source.read_text()
        if source.name.endswith((".cs", ".md")):
            text = re.sub(r"@([A-Z]+)@", lambda match: words[match[1]], text)
        (folder / source.name).write_text(text)


def _tensor(item: onnx.ValueInfoProto, what: str) -> Tensor:
    tensor = item.type.tensor_type
    names = (item.name, *(dim.dim_param for dim in tensor.shape.dim))
    unprintable = [name for name in names if not name.isprintable()]
    if unprintable:
        raise InputError(
            f"{what} {item.name!r} of the model: the name {unprintable[0]!r} has characters that a program's source "
            "cannot have; rename it in the model"
        )
    row = from_onnx(tensor.elem_type)
    if row is None or dtype_name(row.dtype) not in _TYPES or not tensor.HasField("shape"):
        found = "not a tensor" if row is None else dtype_name(row.dtype)
        rank = "" if tensor.HasField("shape") else " of unknown rank"
        raise InputError(
            f"{what} {item.name!r} of the model is {found}{rank}; the programs of a bundle support only tensors of "
            f"known rank and of {', '.join(_TYPES)}"
        )
    sizes = (
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{item.name}_{axis}"
        for axis, dim in enumerate(tensor.shape.dim)
    )
    return Tensor(item.name, row.dtype, tuple(sizes))


def _macro(size: str) -> str:
    spelled = re.sub(r"\W", "_", size, flags=re.ASCII)
    # Another size may be spelled the same.
    return f"SIZE_{spelled}" if spelled == size else f"SIZE_{spelled}_{zlib.crc32(size.encode())}"


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _header(model: str, library: str, inputs: list[Tensor], outputs: list[Tensor]) -> Iterator[str]:
    yield f"#define MODEL {_text(model)}"
    yield f"#define LIBRARY {_text(f'./{library}')}"
    yield f"#define INPUTS {len(inputs)}"
    yield f"#define OUTPUTS {len(outputs)}"
    for size in dict.fromkeys(size for item in inputs for size in item.sizes if isinstance(size, str)):
        yield f"#ifndef {_macro(size)} /* which the model leaves open */\n#define {_macro(size)} 1\n#endif"
    yield "typedef struct {"
    yield "  const char *name;"
    yield "  ONNXTensorElementDataType type;"
    yield "  size_t item, rank; /* item: the bytes of an element */"
    yield "  const int64_t *shape;"
    yield "  int64_t count;"
    yield "} Input;"
    for number, item in enumerate(inputs):
        yield f"static const int64_t shape_{number}[] = {{{', '.join(item.macros) or '0'}}};"
    yield "static const Input inputs[INPUTS + 1] = {"
    for number, item in enumerate(inputs):
        kind = f"ONNX_TENSOR_ELEMENT_DATA_TYPE_{_TYPES[dtype_name(item.dtype)][0]}"
        count = " * ".join(("(int64_t)1", *item.macros))
        yield f"  {{{_text(item.name)}, {kind}, {item.dtype.itemsize}, {len(item.sizes)}, shape_{number}, {count}}},"
    yield "};"
    yield f"static const char *const outputs[OUTPUTS] = {{{', '.join(_text(item.name) for item in outputs)}}};"
    yield ""


def _in_c_sharp(item: Tensor) -> str:
    kind = _TYPES[dtype_name(item.dtype)][1]
    sizes = ", ".join(str(size) if isinstance(size, int) else f"1 /* {_macro(size)} */" for size in item.sizes)
    return f"    NamedOnnxValue.CreateFromTensor({_text(item.name)}, new DenseTensor<{kind}>(new int[] {{ {sizes} }})),"


def _triton(name: str, library: str, inputs: list[Tensor], outputs: list[Tensor]) -> str:
    def spell(items: list[Tensor]) -> str:
        lines = [
            f"  {{ name: {_text(item.name)}, data_type: TYPE_{_TYPES[dtype_name(item.dtype)][2]}, dims: "
            f"[ {', '.join(str(size) if isinstance(size, int) else '-1' for size in item.sizes)} ] }}"
            for item in items
        ]
        return ",\n".join(lines)

    return f"""# Not run by the tests of pyops. The library's path is the one in the server's container.
name: {_text(name)}
backend: "onnxruntime"
max_batch_size: 0
input [
{spell(inputs)}
]
output [
{spell(outputs)}
]
model_operations {{ op_library_filename: [ {_text(f"/models/{name}/1/{library}")} ] }}
"""
