"""Comparison of torch with ONNX Runtime on a model's outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pyops._models.model import ModelSource
from pyops._schema import devices
from pyops._schema.dtypes import DType

from ._finishing.dynamo import capture
from ._finishing.program import Model
from ._library.translation_table import translation_table
from ._progress import with_progress
from ._report import OutputComparison, VerificationReport, compare
from ._torch.arguments import to_onnx_outputs
from ._torch.recorded_arguments import input_values
from ._torch.tensors import as_onnx_array, numpy_dtype
from ._torch_private.exporter import one_at_a_time
from ._torch_private.trees import clone_tensors, tensor_leaves
from ._verification.intermediates import compare_intermediates
from ._verification.reference import Reference
from .errors import ExportError


@one_at_a_time
def verify(
    model: Model,
    args: tuple[Any, ...] | None = None,
    program: ModelSource | None = None,
    *,
    samples: Iterable[tuple[Any, ...]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    tolerances: Mapping[Any, tuple[float, float]] | None = None,
    intermediates: bool = False,
    reference: bool = False,
    progress: bool = False,
) -> VerificationReport:
    """Compare what torch and ONNX Runtime compute for a model.

    The model runs in evaluation mode and without gradients, on copies of the arguments; its
    training mode is restored. ONNX Runtime runs on the device of the model's tensors, CPU or GPU.

    Parameters
    ----------
    model : torch.nn.Module or torch.export.ExportedProgram
        The model, or the ExportedProgram captured from it.
    args : tuple, optional
        Positional arguments; by default the example inputs of an ExportedProgram.
    program : ONNXProgram, ModelProto, path or bytes, optional
        The exported model. By default the model is exported with the first sample.
    samples : iterable of tuples, optional
        Several tuples of positional arguments, in place of `args`; consumed lazily.
    kwargs : mapping, optional
        Keyword arguments of every call, in the order in which the model was exported with them.
    tolerances : mapping, optional
        ``(rtol, atol)`` by dtype (NumPy's or torch's). Other dtypes use the tolerances of
        ``torch.testing.assert_close``; integers must be equal.
    intermediates : bool
        Also compare the values inside the model and name the first node that differs. `program` must have been
        returned by `export`.
    reference : bool
        Also run ONNX's reference evaluator, with the NumPy kernels of the declared ops, and report for each output
        whether it agrees with torch or with ONNX Runtime.
    progress : bool
        Show a progress bar over the samples; needs rich.

    Returns
    -------
    VerificationReport
        ``report.ok`` is the verdict, ``report.outputs`` has one comparison per sample and output, and
        ``str(report)`` is a table of them.

    Raises
    ------
    ExportError
        The arguments are missing, given twice, or do not match the program's inputs in number; or
        `intermediates` is set and the program has no torch graph; or `reference` is set and ONNX's evaluator does
        not support an operator of the model.
    ModelError
        A session cannot load `program`.
    BaseException
        Any exception of a kernel or the model, unchanged.
    MissingDependencyError
        `progress` is set and rich is not installed, or a tensor is on a GPU and this onnxruntime has no CUDA.
    DeviceError
        A tensor is on a GPU that ONNX Runtime cannot use.

    Examples
    --------
    >>> import exporters, torch
    >>> model = torch.nn.Linear(3, 2).eval()
    >>> report = exporters.verify(model, (torch.ones(1, 3),))
    >>> assert report.ok, report
    """
    from pyops._runtime.session import InferenceSession  # needs onnxruntime, which exporting does not

    calls, total, keywords = _samples(model, args, samples, kwargs)
    allowed = {_dtype(dtype): pair for dtype, pair in (tolerances or {}).items()}
    run = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    outputs: list[OutputComparison] = []
    inside: list[OutputComparison] = []
    count = 0
    with _evaluation(model), torch.no_grad():
        first = next(calls)
        if program is None:
            program = capture(
                model, first, custom_translation_table=translation_table(), kwargs=keywords, verbose=False
            )
        session = InferenceSession(program, providers=_providers(run, first, keywords))
        names = [item.name for item in session.get_outputs()]
        opinion = Reference(program) if reference else None
        every = itertools.chain([first], calls)
        for sample in with_progress(every, "comparing", total) if progress else every:
            expected = to_onnx_outputs(run(*clone_tensors(sample), **clone_tensors(keywords)))
            feed = {name: as_onnx_array(value) for name, value in input_values(session, sample, keywords).items()}
            actual = session.run(None, feed)
            compared = compare(count, names, expected, actual, allowed)
            outputs += opinion.judge(compared, feed, expected, actual, allowed) if opinion else compared
            if intermediates:
                inside += compare_intermediates(count, program, sample, keywords, allowed)
            count += 1
    return VerificationReport(tuple(outputs), count, tuple(inside))


def _providers(run: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the execution providers for the device of the model's tensors, or of the arguments if it has none."""
    model = [*run.parameters(), *run.buffers()] if isinstance(run, torch.nn.Module) else []
    on_gpu = any(tensor.device.type == "cuda" for tensor in model or tensor_leaves((args, kwargs)))
    return ([devices.CUDA_PROVIDER] if on_gpu else []) + ["CPUExecutionProvider"]


def _dtype(dtype: Any) -> DType:
    return numpy_dtype(dtype) if isinstance(dtype, torch.dtype) else np.dtype(dtype)


def _samples(
    model: Model,
    args: tuple[Any, ...] | None,
    samples: Iterable[tuple[Any, ...]] | None,
    kwargs: Mapping[str, Any] | None,
) -> tuple[Iterator[tuple[Any, ...]], int | None, dict[str, Any]]:
    """Return an iterator of positional arguments, their number if known, and the keyword arguments of every call.

    Raises
    ------
    ExportError
        Both `args` and `samples` were given, or neither, or `samples` is empty or has an item that is not a tuple.
    """
    if args is not None and samples is not None:
        raise ExportError("verify got args and samples; pass verify(model, args) or verify(model, samples=[args, ...])")
    if samples is None and args is None and kwargs is None:
        if not isinstance(model, torch.export.ExportedProgram):
            raise ExportError("verify got no arguments for the model; pass verify(model, (x,)) or samples=[(x,), ...]")
        args, kwargs = model.example_inputs
    given: Iterable[tuple[Any, ...]] = [() if args is None else args] if samples is None else samples
    calls = map(_checked, given)
    try:
        first = next(calls)
    except StopIteration:
        raise ExportError("verify got no samples; pass at least one tuple of arguments") from None
    total = len(given) if isinstance(given, Sized) else None
    return itertools.chain([first], calls), total, dict(kwargs or {})


def _checked(call: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(call, tuple):
        raise ExportError(f"verify takes a model's arguments as a tuple, not {type(call).__name__}; write (x,)")
    return call


@contextmanager
def _evaluation(model: Model) -> Iterator[None]:
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
