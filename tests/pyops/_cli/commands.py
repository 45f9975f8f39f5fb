"""The command line run in this process, and what its tests pass to it."""

import json
from typing import Any

import onnx
from typer.testing import CliRunner, Result

from pyops._cli import app
from pyops._cli.commands import medians

OPS = """
import numpy as np
from numpy.typing import NDArray
from pyops import onnx_op

F32 = NDArray[np.float32]

@onnx_op("typed::Plus")
def plus(x: F32, *, by: float = 1.0) -> F32:
    return x + np.float32(by)

@onnx_op("typed::Wrong")
def wrong(x: F32) -> F32:
    return x.astype(np.float64)

@onnx_op("typed::Shout")
def shout(x: NDArray[np.str_]) -> NDArray[np.str_]:
    return np.array([item.upper() for item in x], object)

@onnx_op("typed::Concatenate")
def concatenate(first: F32, *rest: F32) -> F32:
    return np.concatenate([first, *rest])

@onnx_op("typed::Options")
def options(x: F32, *, checks: str = "", generate: int = 1) -> F32:
    return x * np.float32(generate)

@onnx_op("typed::Ending")
def ending(x: F32) -> F32:
    print("the kernel prints")
    if not len(x):
        raise SystemExit(7)
    return x + np.float32(1)

print("the module prints")
not_an_op = 3
"""


def command(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def parsed(*arguments: str, code: int = 0) -> Any:
    return json.loads(command(*arguments, "--json", code=code).stdout)


def save(model: onnx.ModelProto, name: str = "model.onnx") -> str:
    onnx.save(model, name)
    return name


def quick_medians(calls: Any) -> Any:
    return medians(calls, rounds=1, seconds=0)
