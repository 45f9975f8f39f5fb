"""Results of the models, in one JSON file that is rewritten after each export, so that a run can be resumed."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from exporters.errors import ExportError
from pyops._support.atomic_files import write_text
from tests.model_coverage.model import Model
from tests.operator_coverage.results import versions


class Exporter(StrEnum):
    """The exporter of a model."""

    TORCH = "torch.onnx.export"
    OURS = "exporters.export"


class Status(StrEnum):
    """The outcome of an export."""

    DYNAMIC = "every size"
    """Reproduced, also at another size than the example's."""
    FIXED = "the example's size"
    """Reproduced at the example's size."""
    FAILED = "failed"
    MISSING = "not installed"
    UNUSABLE = "unusable"
    """torch itself does not run the model."""


REPRODUCED = (Status.DYNAMIC, Status.FIXED)


@dataclass(frozen=True)
class Result:
    """The result of one export of one model."""

    status: Status
    kind: str = ""  # the stage at which it failed, or at which another size than the example's did
    reason: str = ""  # why, in one line
    difference: float | None = None  # the largest from torch's outputs, divided by the largest of each output if > 1
    nodes: int = 0
    custom_nodes: dict[str, int] = field(default_factory=dict)  # count per operator that ONNX Runtime does not have
    decisions: int = 0  # values that the capture fixed
    seconds: float = 0.0  # of processor time, for the export
    counterparts: str = ""  # how many of the model's values torch has too


class Results:
    """The results by model and exporter, and the file where they are."""

    def __init__(self, path: Path, found: dict[str, dict[Exporter, Result]]) -> None:
        self.path, self._found = path, found

    @classmethod
    def resume(cls, path: Path) -> Results:
        """Return the results at a path, none if there is no file.

        Raises
        ------
        ExportError
            It is not a file of results, or one of other versions of torch and the like.
        """
        if not path.exists():
            return cls(path, {})
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            theirs = data["versions"]
            found = {
                name: {exporter: _result(item[exporter]) for exporter in Exporter if exporter in item}
                for name, item in data["models"].items()
            }
        except (KeyError, TypeError, ValueError) as error:
            raise ExportError(f"{path} is not a file of model results ({error}); move it away") from error
        if theirs != versions():
            raise ExportError(
                f"{path} has results of other versions ({theirs}, now {versions()}); choose another file, or move it "
                "away"
            )
        return cls(path, found)

    def add(self, model: Model, exporter: Exporter, result: Result) -> None:
        """Add a result, in place of an earlier one, and write the file."""
        self._found.setdefault(model.name, {})[exporter] = result
        models = {name: {key: _data(item) for key, item in sorted(of.items())} for name, of in self}
        write_text(self.path, json.dumps({"versions": versions(), "models": models}, indent=1) + "\n")

    def get(self, name: str, exporter: Exporter) -> Result | None:
        """Return a result, or None if there is none yet."""
        return self._found.get(name, {}).get(exporter)

    def __iter__(self) -> Any:
        return iter(sorted(self._found.items()))


def _data(result: Result) -> dict[str, Any]:
    data = {name: value for name, value in asdict(result).items() if value not in ("", {}, 0, None, False)}
    if result.difference is not None:  # JSON has no infinity and no NaN
        data["difference"] = result.difference if math.isfinite(result.difference) else str(result.difference)
    return data


def _result(data: dict[str, Any]) -> Result:
    difference = data.get("difference")
    numbers = {"difference": None if difference is None else float(difference)}
    return Result(**{**data, **numbers, "status": Status(data["status"])})
