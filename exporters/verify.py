"""Torch against ONNX Runtime, output by output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

import pyops

from ._torch_private import clone_tensors
from .adapt import input_values, to_array, to_onnx_outputs
from .dynamo import capture
from .errors import ExportError
from .program import Model
from .report import OutputReport, Report, compare


def verify(
    model: Model,
    args: tuple[Any, ...] | None = None,
    program: Any = None,
    *,
    samples: Sequence[tuple[Any, ...]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Report:
    """Compare what torch and ONNX Runtime compute for a model.

    The model runs in evaluation mode and without gradients, on copies of the arguments; its
    training mode is restored.

    Parameters
    ----------
    model : torch.nn.Module or torch.export.ExportedProgram
        The model, or its capture.
    args : tuple, optional
        Positional arguments. An ExportedProgram brings its own.
    program : ONNXProgram, ModelProto, path or bytes, optional
        The exported model; unless given, the model is exported with the (first) arguments.
    samples : sequence of tuples, optional
        Several positional arguments instead of one.
    kwargs : mapping, optional
        Keyword arguments, in the order in which the model was exported with them.

    Returns
    -------
    Report
        ``report.ok``, a line per output in ``str(report)``, and the figures in ``report.outputs``.

    Raises
    ------
    ExportError
        The arguments are missing, given twice, or more or fewer than the program's inputs.

    Examples
    --------
    >>> import exporters, torch
    >>> report = exporters.verify(model, (x,), program)  # doctest: +SKIP
    >>> assert report.ok, report  # doctest: +SKIP
    """
    calls, keywords = _samples(model, args, samples, kwargs)
    run = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    with _evaluation(model), torch.no_grad():
        if program is None:
            program = capture(model, calls[0], kwargs=keywords, verbose=False)
        session = pyops.InferenceSession(program)
        inputs = [item.name for item in session.get_inputs()]
        names = [item.name for item in session.get_outputs()]
        outputs: list[OutputReport] = []
        for number, sample in enumerate(calls):
            expected = run(*clone_tensors(sample), **clone_tensors(keywords))
            fed = map(to_array, input_values(inputs, sample, keywords))
            actual = session.run(None, dict(zip(inputs, fed, strict=True)))
            outputs += compare(number, names, to_onnx_outputs(expected), actual)
    return Report(tuple(outputs), len(calls))


def _samples(
    model: Model,
    args: tuple[Any, ...] | None,
    samples: Sequence[tuple[Any, ...]] | None,
    kwargs: Mapping[str, Any] | None,
) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    if args is not None and samples is not None:
        raise ExportError("verify got args and samples; pass verify(model, args) or verify(model, samples=[args, ...])")
    if samples is not None:
        calls = list(samples)
        if not calls:
            raise ExportError("verify got no samples; pass at least one tuple of arguments")
    elif args is None and kwargs is None and isinstance(model, torch.export.ExportedProgram):
        args, kwargs = model.example_inputs
        calls = [args]
    elif args is None and kwargs is None:
        raise ExportError("verify got no arguments for the model; pass verify(model, (x,)) or samples=[(x,), ...]")
    else:
        calls = [args or ()]
    for call in calls:
        if not isinstance(call, tuple):
            raise ExportError(f"verify takes a model's arguments as a tuple, not {type(call).__name__}; write (x,)")
    return calls, dict(kwargs or {})


@contextmanager
def _evaluation(model: Model) -> Iterator[None]:
    """Evaluation mode, with each submodule's own mode put back."""
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
