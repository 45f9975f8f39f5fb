"""Torch against ONNX Runtime, output by output."""

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

from ._dynamo import capture
from ._finishing.program import Model
from ._progress import shown
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
    training mode is restored. ONNX Runtime runs where the model's tensors lie: on the GPU, or on the CPU.

    Parameters
    ----------
    model : torch.nn.Module or torch.export.ExportedProgram
        The model, or its capture.
    args : tuple, optional
        Positional arguments. An ExportedProgram brings its own.
    program : ONNXProgram, ModelProto, path or bytes, optional
        The exported model; unless given, the model is exported with the (first) arguments.
    samples : iterable of tuples, optional
        Several positional arguments instead of one; they are read one by one.
    kwargs : mapping, optional
        Keyword arguments, in the order in which the model was exported with them.
    tolerances : mapping, optional
        Dtype (NumPy's or torch's) to relative and absolute tolerance. The others are those of
        ``torch.testing.assert_close``; integers must be equal.
    intermediates : bool
        Compare the values inside the model too, and name the first node that differs. The program must
        be one that `export` returned.
    reference : bool
        Let ONNX's own evaluator compute the model too, with the declared ops' kernels in NumPy, and say of
        each output with whom it agrees: where torch and ONNX Runtime differ, that tells which one to look at.
    progress : bool
        Show a bar while samples are compared; needs rich.

    Returns
    -------
    VerificationReport
        ``report.ok``, a line per output in ``str(report)``, and the figures in ``report.outputs``.

    Raises
    ------
    ExportError
        The arguments are missing, given twice, or more or fewer than the program's inputs; or
        `intermediates` are asked for of a program without torch's graph, or `reference` of a model with
        an operator that ONNX's evaluator lacks.
    ModelError
        The program is none that a session takes.
    BaseException
        Whatever a kernel or the model raises, as itself.
    MissingDependencyError
        `progress` is asked for and rich is not installed, or a tensor lies on a GPU and this onnxruntime
        has no CUDA.
    DeviceError
        A tensor lies on a GPU that ONNX Runtime cannot use.

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
            program = capture(model, first, kwargs=keywords, verbose=False)
        session = InferenceSession(program, providers=_providers(run, first, keywords))
        names = [item.name for item in session.get_outputs()]
        opinion = Reference(program) if reference else None
        every = itertools.chain([first], calls)
        for sample in shown(every, "comparing", total) if progress else every:
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
    """The execution providers for where the model's tensors lie, or, without any, those of its arguments."""
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
    """The positional arguments of each call, how many there are if that is known, and the keywords of all."""
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
