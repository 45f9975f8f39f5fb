"""The commands that take a model: ``inspect`` and ``run``."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import typer

from .._display.inspection import inspect
from .._files import whole_file
from .._schema.dtypes import describe, dtype_name
from ..errors import PyopsError
from . import output
from .arguments import as_feed, import_modules, read_arrays
from .output import Answer, answering, progress_console

_FILE_NAMES = sys.getfilesystemencoding()
_LONGEST = 200  # bytes, of the 255 that file systems allow


@answering
def inspect_model(
    model: output.Model,
    modules: output.Modules = [],  # noqa: B006  typer reads it
    plugins: output.Plugins = False,
    as_json: output.Json = False,
) -> Answer:
    """Report which kernel would run each custom node of a model, and which package provides it.

    The exit code is 1 if a node would not run.
    """
    import_modules(modules)
    report = inspect(model, import_plugins=plugins)
    data = dataclasses.asdict(report) | {"problems": report.problems, "ok": report.ok}
    return Answer(report.parts(), data, report.ok)


@answering
def run_model(
    model: output.Model,
    inputs: output.Inputs = [],  # noqa: B006
    save: output.Save = None,
    modules: output.Modules = [],  # noqa: B006
    engine: output.Engine = output.EngineName.AUTO,
    providers: output.Providers = [],  # noqa: B006
    as_json: output.Json = False,
) -> Answer:
    """Run a model once, and print its outputs or save them."""
    import_modules(modules)
    arrays = read_arrays(inputs)
    from .._runtime.session import InferenceSession

    _check_providers(providers)
    with progress_console().status("creating the session"):
        session = InferenceSession(model, providers=list(providers) or None, engine=engine.value)
    feed = as_feed(arrays, session.get_inputs())
    with progress_console().status("running"):
        results = session.run(None, feed)
    names = [item.name for item in session.get_outputs()]
    files = _save(save, names, results) if save is not None else [""] * len(names)
    records = [_record(*item) for item in zip(names, results, files, strict=True)]
    saved = save is not None
    rows = [
        (name, _describe(value), _values(value), *[file] * saved)
        for name, value, file in zip(names, results, files, strict=True)
    ]
    return Answer([[("output", "type", "values", *["file"] * saved), *rows]], records)


def _check_providers(names: list[str]) -> None:
    from onnxruntime import get_available_providers

    available = get_available_providers()
    unknown = [name for name in names if name not in available]
    if unknown:  # ONNX Runtime would only warn and ignore it
        raise typer.BadParameter(f"this ONNX Runtime has no {unknown[0]!r}; it has {', '.join(available)}")


def _save(folder: Path, names: list[str], results: list[Any]) -> list[str]:
    """Save each output as a .npy file; return the paths."""
    files: list[str] = []
    for name, value in zip(names, results, strict=True):
        # The model chooses the names, so they must not lead out of the folder or collide.
        spelled = name.encode(_FILE_NAMES, "replace")[:_LONGEST].decode(_FILE_NAMES, "ignore")
        stem = re.sub(r"[^\w.-]", "_", spelled).lstrip(".") or "output"
        while str(folder / f"{stem}.npy") in files:
            stem += "_"
        path = folder / f"{stem}.npy"
        array = np.asarray(value)
        try:
            with whole_file(path) as part, part.open("wb") as file:
                # NumPy writes to a real file without Python's file object, and does not notice a full disk.
                writer: Any = SimpleNamespace(write=file.write)
                np.save(writer, array.astype(str) if array.dtype == object else array, allow_pickle=False)
        except OSError as error:
            raise PyopsError(str(error)) from error
        files.append(str(path))
    return files


def _record(name: str, value: Any, file: str) -> dict[str, Any]:
    record: dict[str, Any] = {"name": name, "type": type(value).__name__}
    if isinstance(value, np.ndarray):
        record |= {"type": dtype_name(value.dtype), "shape": list(value.shape)}
    return record | {"values": _values(value)} | ({"file": file} if file else {})


def _describe(value: Any) -> str:
    return describe(value) if isinstance(value, np.ndarray) else type(value).__name__


def _values(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = np.array2string(value, threshold=8, edgeitems=3, precision=6)
    return " ".join(str(value).split())
