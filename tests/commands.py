"""The command line in this process, and what its tests give it."""

import json
from typing import Any

import onnx
from typer.testing import CliRunner, Result

from pyops.benchmarking import medians
from pyops.cli.app import app


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


def quick_medians(calls: Any, track: Any) -> Any:
    return medians(calls, rounds=1, seconds=0, track=track)
