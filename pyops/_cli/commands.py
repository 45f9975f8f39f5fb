"""The commands about ops and models: ``list``, ``inspect``, ``run``, ``check``, ``bench`` and ``build``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import statistics
import sys
import timeit
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Annotated, Any

import numpy as np
import onnx
import typer

from .. import Op
from .._core import import_all_plugins, waiting_plugins
from .._display import op_table
from .._display.inspection import inspect
from .._support.atomic_files import whole_file
from .._support.element_types import describe
from .._support.progress import progress, track
from ..errors import EngineError, PyopsError
from . import output
from .command_arguments import as_call, as_feed, find_op, import_module, import_modules, read_arrays, read_attributes
from .output import Answer, answering

if TYPE_CHECKING:
    from ..testing import Sample

_FILE_NAMES = sys.getfilesystemencoding()
_LONGEST = 200  # bytes, of the 255 that file systems allow
ROUNDS = 15
SECONDS = 0.02
"""How long to repeat each call in each round, in seconds."""

Call = Callable[[], object]


@answering
def list_ops(
    modules: output.Modules = [],  # noqa: B006  typer reads it
    plugins: output.Plugins = False,
    as_json: output.Json = False,
) -> Answer:
    """List the declared ops, and the installed plug-ins that could declare more."""
    import_modules(modules)
    if plugins:
        import_all_plugins()
    table = op_table.list_ops()
    waiting = [
        {"domain": plugin.name, "package": package, "module": plugin.value} for package, plugin in waiting_plugins()
    ]
    where_empty = "no ops are declared; --import MODULE imports a module that declares ops"
    parts = table.parts() if table else [where_empty, *table.notes]
    return Answer(parts, {"ops": table.records(), "plugins": waiting})


@answering
def inspect_model(
    model: output.ModelOrLibrary,
    modules: output.Modules = [],  # noqa: B006
    libraries: output.Libraries = [],  # noqa: B006
    plugins: output.Plugins = False,
    as_json: output.Json = False,
) -> Answer:
    """Report which kernel would run each custom node of a model, or what is in a library made by pyops build.

    The exit code is 1 if a node would not run.
    """
    from .._machine.libraries.build_report import read_library

    if model.suffix in output.LIBRARY_SUFFIXES:
        made = read_library(model)
        return Answer(made.parts(), dataclasses.asdict(made))
    import_modules(modules)
    known = {tuple(op.name.rsplit("::", 1)): str(path) for path in libraries for op in read_library(path).ops}
    report = inspect(model, import_plugins=plugins, in_libraries=known)  # type: ignore[arg-type]  # each has two parts
    data = dataclasses.asdict(report) | {"problems": report.problems, "ok": report.ok}
    return Answer(report.parts(), data, report.ok)


@answering
def run_model(
    model: output.Model,
    inputs: output.Inputs = [],  # noqa: B006
    save: output.Save = None,
    file: output.Output = None,
    modules: output.Modules = [],  # noqa: B006
    libraries: output.Libraries = [],  # noqa: B006
    fill_missing: output.FillMissing = False,
    engine: output.Engine = "auto",
    providers: output.Providers = [],  # noqa: B006
    as_json: output.Json = False,
) -> Answer:
    """Run a model once, and print its outputs or save them."""
    import_modules(modules)
    arrays = read_arrays(inputs)
    import onnxruntime

    from .. import InferenceSession

    options: Any = onnxruntime.SessionOptions() if libraries else None
    for path in libraries:
        options.log_severity_level = 4  # as without a library: the error has the text
        options.register_custom_ops_library(str(path.resolve()))
    with progress("creating the session"):
        session = InferenceSession(
            model, options, providers=list(providers) or None, engine=engine, fill_missing=fill_missing
        )
    feed = as_feed(arrays, session.get_inputs())
    with progress("running"):
        results = session.run(None, feed)
    names = [item.name for item in session.get_outputs()]
    files = [] if file is None else [str(file)] * len(names)
    if file is not None:
        # numpy.savez does not take the names of its parameters.
        with _opened(file) as part, zipfile.ZipFile(part, "w") as archive:
            for name, value in zip(names, results, strict=True):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    _save_array(member, value)
    if save is not None:
        files = _save(save, names, results)
    records: list[dict[str, Any]] = []
    rows = [["output", "type", "values", *["file"] * bool(files)]]
    for index, (name, value) in enumerate(zip(names, results, strict=True)):
        is_array, saved = isinstance(value, np.ndarray), files[index : index + 1]
        shown = np.array2string(value, threshold=8, edgeitems=3, precision=6) if is_array else value
        known = output.plain(value) if is_array else {"type": type(value).__name__, "values": value}
        records.append({"name": name, **known, **({"file": saved[0]} if saved else {})})
        rows.append([name, describe(value), " ".join(str(shown).split()), *saved])
    return Answer([rows], records)


@answering
def compare_models(
    a: output.Model,
    b: output.Model,
    inputs: output.Inputs = [],  # noqa: B006
    modules: output.Modules = [],  # noqa: B006
    libraries: output.Libraries = [],  # noqa: B006
    fill_missing: output.FillMissing = False,
    as_json: output.Json = False,
) -> Answer:
    """Compare two models that should compute the same, and name the first node of the second that does not.

    Random inputs are generated unless inputs are given. The exit code is 1 if the models differ.
    """
    from .. import compare_models
    from .._core import load_model
    from ..testing._model_session import session_of

    import_modules(modules)
    arrays, paths = read_arrays(inputs), [str(path.resolve()) for path in libraries]
    feed = None
    if arrays:
        feed = as_feed(arrays, session_of(load_model(a), paths, fill_missing=fill_missing).get_inputs())
    found = compare_models(a, b, feed, fill_missing=fill_missing, libraries=paths)
    return Answer(found.parts(), found.to_dict(), found.ok)


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
        with _opened(path) as file:
            # NumPy writes to a real file without Python's file object, and does not notice a full disk.
            _save_array(SimpleNamespace(write=file.write), value)
        files.append(str(path))
    return files


def _save_array(file: Any, value: Any) -> None:
    array = np.asarray(value)
    np.save(file, array.astype(str) if array.dtype == object else array, allow_pickle=False)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears when it is complete."""
    try:
        with whole_file(path) as part, part.open("wb") as file:
            yield file
    except OSError as error:
        raise PyopsError(str(error)) from error


@answering
def check_op(
    op: output.OpName,
    inputs: output.Inputs = [],  # noqa: B006
    attributes: output.Attributes = [],  # noqa: B006
    checks: output.Checks = ["*"],  # noqa: B006
    generate: output.Generate = 0,
    modules: output.Modules = [],  # noqa: B006
    as_json: output.Json = False,
) -> Answer:
    """Check an op: its kernel, its shape function, every engine and its PyTorch operator.

    Small arrays are generated unless inputs are given. The exit code is 1 if a check fails.
    """
    from ..testing import check

    import_modules(modules)
    sample = _sample(op, attributes, inputs)
    report = check(sample, checks=checks, generate=generate, raise_exception=False)
    results = [{"name": item.name, "status": item.status, "reason": item.reason} for item in report]
    data = {"op": sample.op.signature.qualified_name, "ok": report.ok, "checks": results}
    return Answer(report.parts(), data, report.ok)


def _sample(op: str, attributes: list[str], inputs: list[str]) -> Sample:
    """Return the call of an op with these attributes, on these inputs or generated ones."""
    from ..testing import Sample
    from ..testing._check import example

    found = find_op(op)
    named = read_attributes(found.signature, attributes)
    return Sample(found, *as_call(found.signature, read_arrays(inputs)), **named) if inputs else example(found, named)


def medians(calls: Mapping[str, Call], rounds: int = ROUNDS, seconds: float = SECONDS) -> dict[str, float]:
    """Return the seconds per call, as medians over rounds in which the calls alternate.

    Times differ between machines and over time; only the ratios within one result are comparable.

    Parameters
    ----------
    calls : mapping
        The functions to measure, by name. Each is called twice beforehand: to warm up, and to choose how often to
        repeat it.
    rounds : int
        The number of rounds.
    seconds : float
        How long to repeat each call in each round; it is made at least once.
    """
    numbers = {}
    for name, call in calls.items():
        call()
        numbers[name] = max(1, round(seconds / max(timeit.timeit(call, number=1), 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in track(range(rounds), "measuring"):
        for name, call in calls.items():
            times[name].append(timeit.timeit(call, number=numbers[name]) / numbers[name])
    return {name: statistics.median(values) for name, values in times.items()}


@answering
def bench(
    what: output.Benched,
    inputs: output.Inputs = [],  # noqa: B006
    attributes: output.Attributes = [],  # noqa: B006
    modules: output.Modules = [],  # noqa: B006
    as_json: output.Json = False,
) -> Answer:
    """Measure an op in each engine against its plain call, or a model in each engine.

    The calls alternate; compare only the ratios within one run.
    """
    import_modules(modules)
    if what.endswith(".onnx"):
        if attributes:
            raise typer.BadParameter("a model contains its attributes; leave out --attribute")
        arrays = read_arrays(inputs)
        calls, missing = _sessions(what, lambda session: as_feed(arrays, session.get_inputs()), {})
    else:
        sample = _sample(what, attributes, inputs)
        plain: dict[str, Call] = {"plain call": functools.partial(sample.op, *sample.inputs, **sample.attributes)}
        calls, missing = _sessions(sample.model(), lambda session: sample.feed, plain)
    if not calls:
        raise EngineError("; ".join(f"{name}: {reason}" for name, reason in missing.items()))
    with progress("measuring"):
        times = medians(calls)
    base = next(iter(times))
    records = [{"name": name, "seconds": time, "ratio": time / times[base]} for name, time in times.items()]
    rows = [(name, f"{time * 1e6:.1f} µs", f"{time / times[base]:.2f}") for name, time in times.items()]
    left_out = [f"{name} is left out: {reason}" for name, reason in missing.items()]
    parts = [[("", "a call", f"to {base}"), *rows], *left_out]
    return Answer(parts, {"base": base, "results": records, "left out": missing})


def _sessions(
    model: Any, feed_for: Callable[[Any], dict[str, Any]], calls: dict[str, Call]
) -> tuple[dict[str, Call], dict[str, str]]:
    """Return `calls` with the model's run in each engine added, and why an engine was left out."""
    from ..testing._engine_checks import make_session

    missing, feed = {}, None
    for engine in ("native", "extensions"):
        try:
            session = make_session(model, engine)
        except PyopsError as error:
            missing[engine] = str(error)
            continue
        feed = feed_for(session)
        calls[engine] = functools.partial(session.run, None, feed)
    if feed is not None:
        try:
            evaluator = make_session(model, "reference")
            evaluator.run(None, feed)
        except Exception as error:
            missing["reference"] = f"{type(error).__name__}: {error}"
        else:
            calls["reference"] = functools.partial(evaluator.run, None, feed)
    return calls, missing


@answering
def build_library(
    module: Annotated[str, typer.Argument(metavar="MODULE|FILE", help="A module or file that declares ops.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="LIB", help="The library to write.")],
    names: Annotated[list[str], typer.Option("--op", metavar="OP", help="Only this op, domain::Name.")] = [],  # noqa: B006
    models: Annotated[
        list[Path],
        typer.Option(
            "--for", metavar="MODEL", help="Build the ops of this model, for its types and attributes.", exists=True
        ),
    ] = [],  # noqa: B006
    ranks: Annotated[
        list[str], typer.Option(metavar="N|N,M", help="A rank of all inputs, or one for each; may be given again.")
    ] = [],  # noqa: B006
    target: Annotated[
        str | None, typer.Option(help="linux-x86-64, linux-aarch64, ...; by default this machine.")
    ] = None,
    cpu: Annotated[str | None, typer.Option(help="native, or the least that the library requires: x86-64-v3.")] = None,
    linker: Annotated[str | None, typer.Option(help="cc or zig.")] = None,
    skip_unsupported: Annotated[bool, typer.Option(metavar="", help="Leave out ops that cannot be built.")] = False,
    as_json: output.Json = False,
) -> Answer:
    """Build a custom-op library from ops with compiled kernels; ONNX Runtime loads it without Python."""
    declared = [value for value in import_module(module).values() if isinstance(value, Op)]
    ops = [find_op(name) for name in names] or list(dict.fromkeys(declared))
    from .._machine.libraries.build import build
    from .._machine.libraries.specializations import of_model

    examples = [example for model in models for example in of_model(onnx.load(model), ops)]
    report = build(
        out,
        list(dict.fromkeys(example.op for example in examples)) if models else ops,
        examples=examples,
        ranks=[_rank(text) for text in ranks] or None,
        target=target,
        cpu=cpu,
        linker=linker,  # type: ignore[arg-type]  # an unknown one is reported there
        skip_unsupported=skip_unsupported,
    )
    return Answer(report.parts(), dataclasses.asdict(report))


def _rank(text: str) -> int | tuple[int, ...]:
    try:
        ranks = tuple(map(int, text.split(",")))
    except ValueError:
        raise typer.BadParameter(f"expected a rank or one for each input (2 or 3,1), got {text!r}") from None
    return ranks if "," in text else ranks[0]
