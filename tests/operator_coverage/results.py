"""Results of a run, in a file of JSON lines that is extended after each call, so that a run can be resumed."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

import onnx
import onnxruntime
import onnxscript
import torch

from exporters.errors import ExportError
from pyops._support.atomic_files import write_text
from tests.operator_coverage.plan import Mode, Plan


class Status(StrEnum):
    """The outcome of a call."""

    REPRODUCED = "reproduced"
    FAILED = "failed"
    RANDOM = "random"
    """Another seed gives another result. The call was exported and run, and dtypes and shapes are right."""
    UNINITIALISED = "uninitialised"
    """The result depends on uninitialised memory. Otherwise as for random."""
    UNUSABLE = "unusable"
    """The call cannot be compared: torch does not run it here, or it takes or returns no tensor."""
    FIXED = "fixed size"
    """In a run with dynamic dimensions: torch accepts no sample at another size; reproduced at its own."""
    ABSENT = "absent"
    """The operator has fewer samples."""


@dataclass(frozen=True)
class Result:
    """The result of one call."""

    op: str  # the operator's name in the database
    sample: int  # index of the sample
    status: Status
    kind: str = ""  # the stage at which it failed
    reason: str = ""  # why it is not reproduced, in one line
    custom_nodes: dict[str, int] = field(default_factory=dict)  # count per operator that ONNX Runtime does not have
    seconds: float = 0.0  # duration of the export and the run


def versions() -> dict[str, str]:
    """Return the versions of the packages that determine the results."""
    modules = (torch, onnx, onnxruntime, onnxscript)
    return {"python": platform.python_version(), **{module.__name__: str(module.__version__) for module in modules}}


class ResultFile:
    """A file of results: a header line with the plan, and one JSON object per line.

    It is complete if it has `total` results.
    """

    def __init__(self, path: Path, plan: Plan, total: int, versions: dict[str, str], results: Iterable[Result]) -> None:
        self.path, self.plan, self.total, self.versions = path, plan, total, versions
        self._results = {(result.op, result.sample): result for result in results}

    @classmethod
    def read(cls, path: Path) -> ResultFile:
        """Return the file at a path.

        Raises
        ------
        ExportError
            It is not a file of results.
        """
        # A run may have been stopped in the middle of a character.
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        try:
            header = json.loads(lines[0])
            plan = Plan(**{**header["plan"], "mode": Mode(header["plan"]["mode"])})
            # A line without a newline was not written completely.
            results = [_result(line) for line in lines[1:] if line.endswith("\n")]
            return cls(path, plan, header["total"], header["versions"], results)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ExportError(f"{path} is not a file of coverage results ({error}); move it away") from error

    @classmethod
    def resume(cls, path: Path, plan: Plan, total: int) -> ResultFile:
        """Return the file of a run, created if it does not exist.

        Raises
        ------
        ExportError
            The file has another plan, number of calls, or versions of torch and the like.
        """
        fresh = cls(path, plan, total, versions(), [])
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write()
            return fresh
        found = cls.read(path)
        for name in ("plan", "total", "versions"):
            theirs, ours = getattr(found, name), getattr(fresh, name)
            if theirs != ours:
                raise ExportError(
                    f"{path} holds a run with another {name} ({theirs}, now {ours}); choose another folder, or move it "
                    "away"
                )
        found.write()  # drops an incomplete last line
        return found

    def write(self) -> None:
        """Write the whole file."""
        header = json.dumps({"plan": asdict(self.plan), "total": self.total, "versions": self.versions})
        write_text(self.path, "".join([f"{header}\n", *map(_line, self._results.values())]))

    def add(self, result: Result) -> None:
        """Add a result, and append it to the file.

        Raises
        ------
        ExportError
            The file cannot be written, for example because the disk is full.
        """
        self._results[result.op, result.sample] = result
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(result))
        except OSError as error:
            raise ExportError(
                f"cannot write to {self.path} ({error}); it has {len(self) - 1} results: make room, and run this "
                "again to continue from there"
            ) from error

    @property
    def complete(self) -> bool:
        """Return whether every call has a result."""
        return len(self._results) == self.total

    def __iter__(self) -> Iterator[Result]:
        return iter(sorted(self._results.values(), key=lambda item: (item.op, item.sample)))

    def __contains__(self, call: tuple[str, int]) -> bool:
        return call in self._results

    def __len__(self) -> int:
        return len(self._results)


def _line(result: Result) -> str:
    given = {name: value for name, value in asdict(result).items() if value not in ("", {})}
    return json.dumps(given, ensure_ascii=False) + "\n"


def _result(line: str) -> Result:
    values = json.loads(line)
    return Result(**{**values, "status": Status(values["status"])})
