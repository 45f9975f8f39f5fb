"""Comparison of the outputs of a model in torch and in ONNX Runtime."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from pyops._core import ModelSource
from pyops._support.progress import step
from pyops._tolerances import Tolerances
from pyops.testing._model_session import session_of

from ._capture.comparison import allow_rounding, results
from ._capture.model_arguments import as_tuple, input_values
from ._capture.preparation import Model
from ._locate import locatable, locate_difference
from ._report import OutputComparison, VerificationReport, compare
from ._torch.private.trees import tensor_leaves
from ._torch.tensors import as_onnx_array
from .errors import ExportError


def compared(
    model: Model,
    first: tuple[Any, ...],
    calls: Iterable[tuple[Any, ...]],
    keywords: Mapping[str, Any],
    program: ModelSource,
    tolerances: Tolerances,
    fill_missing: bool,
    locating: bool,
) -> VerificationReport:
    """Compare what torch and ONNX Runtime compute for these calls; the rest is as for `exporters.verify`."""
    from pyops import InferenceSession  # needs onnxruntime, which exporting does not

    searched = locatable(program) if locating else None
    run = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    captured: torch.export.ExportedProgram | None = getattr(program, "exported_program", None)
    outputs: list[OutputComparison] = []
    location, agreed, count = None, True, 0
    settings: dict[str, Any] = {"providers": _providers(run, first, keywords), "fill_missing": fill_missing}
    session = InferenceSession(program, **settings)
    names = [item.name for item in session.get_outputs()]
    with torch.no_grad():
        for sample in itertools.chain([first], calls):
            step(f"comparing sample {count + 1}")
            expected = results(run, sample, keywords)
            feed = {name: as_onnx_array(value) for name, value in input_values(session, sample, keywords).items()}
            actual = session.run(None, feed)
            reports = compare(count, names, expected, actual, tolerances)
            # What the user allows is all that is allowed.
            outputs += allow_rounding(reports, captured, sample, keywords) if captured and not tolerances else reports
            count += 1
            agree = all(item.ok for item in outputs)
            if searched and (location is None or (agreed and not agree)):
                wanted = dict(zip(names, expected, strict=False))
                make_session = partial(session_of, **settings)
                location = locate_difference(
                    searched, (sample, keywords), wanted, feed, make_session, tolerances, agree
                )
            agreed = agree
    return VerificationReport(tuple(outputs), count, location)


def _providers(run: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the execution providers for the device of the model's tensors, or of the arguments if it has none."""
    model = [*run.parameters(), *run.buffers()] if isinstance(run, torch.nn.Module) else []
    on_gpu = any(tensor.device.type == "cuda" for tensor in model or tensor_leaves((args, kwargs)))
    return (["CUDAExecutionProvider"] if on_gpu else []) + ["CPUExecutionProvider"]


def calls_of(
    model: Model,
    args: tuple[Any, ...] | torch.Tensor | None,
    samples: Iterable[tuple[Any, ...] | torch.Tensor] | None,
    kwargs: Mapping[str, Any] | None,
) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
    """Return an iterator of the positional arguments of each call, and the keyword arguments of every call.

    Raises
    ------
    ExportError
        Both `args` and `samples` were given, or a module got no arguments at all. The iterator raises it for an item
        that is not a tuple.
    """
    if args is not None and samples is not None:
        raise ExportError("verify got args and samples; pass verify(model, args) or verify(model, samples=[args, ...])")
    if samples is None:
        if args is None and kwargs is None:
            if not isinstance(model, torch.export.ExportedProgram):
                raise ExportError(
                    "verify got no arguments for the model; pass verify(model, (x,)) or samples=[(x,), ...]"
                )
            args, kwargs = model.example_inputs
        samples = [() if args is None else args]
    return (as_tuple("verify", call) for call in samples), dict(kwargs or {})


@contextmanager
def evaluation(model: Model) -> Iterator[None]:
    """Context manager: put the model into evaluation mode, and restore the mode of each submodule afterwards."""
    if isinstance(model, torch.export.ExportedProgram):
        yield
        return
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
