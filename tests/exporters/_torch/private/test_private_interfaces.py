"""Only one folder uses private names of torch, onnx or onnxscript."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import exporters
from exporters._torch import private

FILES = sorted(Path(exporters.__file__).parent.rglob("*.py"))
THE_ONES = sorted(Path(private.__file__).parent.glob("[!_]*.py"))
LIBRARIES = {"torch", "onnx", "onnxscript", "onnx_ir", "torchvision"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def private_uses(source: str) -> Iterator[str]:
    """Imports of private names of the libraries, and private attributes of anything but self and cls."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [*(node.module or "").split("."), *(item.name for item in node.names)]
            if names[0] in LIBRARIES and any(map(is_private, names)):
                yield f"line {node.lineno}: from {node.module} import {', '.join(names[1:])}"
        elif isinstance(node, ast.Import):
            for item in node.names:
                names = item.name.split(".")
                if names[0] in LIBRARIES and any(map(is_private, names)):
                    yield f"line {node.lineno}: import {item.name}"
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("private", "replaced"):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(name.value):
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_private_interface_is_used(path):
    found = list(private_uses(path.read_text()))
    if path in THE_ONES:
        assert found
    else:
        assert not found, f"{path.name} uses private names; move them to exporters/_torch/private, with a test"


@pytest.mark.parametrize(
    "source",
    [
        "from torch._library import custom_ops",
        "import torch._ops",
        "from torch.utils import _pytree",
        "import torch.onnx._internal as internal",
        "from onnxscript._internal import values",
        "op._opoverload",
        "torch.onnx._flags",
        "getattr(op, '_schema')",
        "private('torch.onnx._flags')",
    ],
)
def test_the_scan_finds(source):
    assert list(private_uses(source))


@pytest.mark.parametrize(
    "source", ["self._x", "from . import _torch_private", "a.__name__", "from onnxscript import values"]
)
def test_the_scan_lets_pass(source):
    assert not list(private_uses(source))
