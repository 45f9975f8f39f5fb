"""The results of a run: a file of JSON lines that grows as calls are tried, from which the run goes on."""

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
from pyops._files import write_text
from tests.operator_coverage.plan import Mode, Plan


class Status(StrEnum):
    """What came of a call."""

    REPRODUCED = "reproduced"
    FAILED = "failed"
    RANDOM = "random"
    """Another seed gives another result. It was exported and run, and dtypes and shapes agree."""
    UNINITIALISED = "uninitialised"
    """Likewise, of memory that nobody wrote to."""
    UNUSABLE = "unusable"
    """No call that an export could be held against: torch does not run it here, or it takes or gives no tensor."""
    FIXED = "fixed size"
    """In a run with dynamic dimensions: torch takes no sample at another size; reproduced at its own."""
    ABSENT = "absent"
    """The operator has fewer samples."""


@dataclass(frozen=True)
class Result:
    """What came of one call."""

    op: str  # the operator's name in the database
    sample: int  # which of its samples, from 0
    status: Status
    kind: str = ""  # where it got to, if it failed
    reason: str = ""  # why it is not reproduced, in one line
    custom_nodes: dict[str, int] = field(default_factory=dict)  # how many of each that ONNX Runtime does not have
    seconds: float = 0.0  # that exporting and running took


def versions() -> dict[str, str]:
    """Of what decides the results."""
    modules = (torch, onnx, onnxruntime, onnxscript)
    return {"python": platform.python_version(), **{module.__name__: str(module.__version__) for module in modules}}


class ResultFile:
    """Results on disk, one JSON object a line after a first line that says what the run is.

    It is complete with the total of results, which these versions of torch and the like decided.
    """

    def __init__(self, path: Path, plan: Plan, total: int, versions: dict[str, str], results: Iterable[Result]) -> None:
        self.path, self.plan, self.total, self.versions = path, plan, total, versions
        self._results = {(result.op, result.sample): result for result in results}

    @classmethod
    def read(cls, path: Path) -> ResultFile:
        """The file at a path.

        Raises
        ------
        ExportError
            It is not such a file.
        """
        # A run that was stopped may have been so within a character.
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        try:
            header = json.loads(lines[0])
            plan = Plan(**{**header["plan"], "mode": Mode(header["plan"]["mode"])})
            # A line without an end is one that the run was stopped in.
            results = [_result(line) for line in lines[1:] if line.endswith("\n")]
            return cls(path, plan, header["total"], header["versions"], results)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ExportError(f"{path} is not a file of coverage results ({error}); move it away") from error

    @classmethod
    def resume(cls, path: Path, plan: Plan, total: int) -> ResultFile:
        """The file of a run, made if it is not there.

        Raises
        ------
        ExportError
            The file is of another plan, of more or fewer calls, or of other versions of torch and the like.
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
        found.write()  # without a line that the run was stopped in
        return found

    def write(self) -> None:
        """Write the whole file."""
        header = json.dumps({"plan": asdict(self.plan), "total": self.total, "versions": self.versions})
        write_text(self.path, "".join([f"{header}\n", *map(_line, self._results.values())]))

    def add(self, result: Result) -> None:
        """Keep a result, on disk too.

        Raises
        ------
        ExportError
            The disk is full, say.
        """
        self._results[result.op, result.sample] = result
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(result))
        except OSError as error:
            raise ExportError(
                f"{self.path} cannot be added to ({error}); it has {len(self) - 1} results: make room, and run this "
                "again to go on from there"
            ) from error

    @property
    def complete(self) -> bool:
        """Whether every call has its result."""
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
