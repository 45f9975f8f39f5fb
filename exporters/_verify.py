"""Comparison of the outputs of a model in torch and in ONNX Runtime."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pyops._models.model import ModelSource
from pyops._progress import progress, step
from pyops._schema import devices
from pyops._schema.dtypes import DType

from ._arguments import check_model, check_tuple, input_values, to_onnx_outputs
from ._capture.modes import check_example
from ._capture.preparation import unchanged_attributes
from ._finishing.dynamo import capture
from ._finishing.program import Model
from ._library.library import translation_table
from ._report import OutputComparison, VerificationReport, compare
from ._torch.tensors import as_onnx_array, numpy_dtype
from ._torch_private.patching import one_at_a_time, quiet
from ._torch_private.trees import clone_tensors, tensor_leaves
from .errors import ExportError


@one_at_a_time
@quiet()
@progress("verifying the model")
def verify(
    model: Model,
    args: tuple[Any, ...] | None = None,
    program: ModelSource | None = None,
    *,
    samples: Iterable[tuple[Any, ...]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    tolerances: Mapping[Any, tuple[float, float]] | None = None,
    fill_missing: bool = False,
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
    fill_missing : bool
        Compute nodes for which ONNX Runtime has no kernel, as the argument of `pyops.InferenceSession` does.

    Returns
    -------
    VerificationReport
        ``report.ok`` is the verdict, ``report.outputs`` has one comparison per sample and output, and
        ``str(report)`` is a table of them.

    Raises
    ------
    ExportError
        `model` is not a model; the arguments are missing, given twice, or do not match the program's inputs in number.
    ModelError
        A session cannot load `program`.
    BaseException
        Any exception of a kernel or the model, unchanged.
    MissingDependencyError
        A tensor is on a GPU and this onnxruntime has no CUDA.
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

    check_model("verify", model)
    calls, keywords = _calls(model, args, samples, kwargs)
    allowed = {_dtype(dtype).name: pair for dtype, pair in (tolerances or {}).items()}
    run = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    outputs: list[OutputComparison] = []
    count = 0
    with _evaluation(model), torch.no_grad():
        first = next(calls, None)
        if first is None:
            raise ExportError("verify got no samples; pass at least one tuple of arguments")
        if program is None:
            check_example(model, first, keywords)
            program = capture(model, first, custom_translation_table=translation_table(), kwargs=keywords)
        providers = _providers(run, first, keywords)
        session = InferenceSession(program, providers=providers, fill_missing=fill_missing)
        names = [item.name for item in session.get_outputs()]
        for sample in itertools.chain([first], calls):
            step(f"comparing sample {count + 1}")
            with unchanged_attributes(run):
                expected = to_onnx_outputs(clone_tensors(run(*clone_tensors(sample), **clone_tensors(keywords))))
            feed = {name: as_onnx_array(value) for name, value in input_values(session, sample, keywords).items()}
            actual = session.run(None, feed)
            outputs += compare(count, names, expected, actual, allowed)
            count += 1
    return VerificationReport(tuple(outputs), count)


def _providers(run: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the execution providers for the device of the model's tensors, or of the arguments if it has none."""
    model = [*run.parameters(), *run.buffers()] if isinstance(run, torch.nn.Module) else []
    on_gpu = any(tensor.device.type == "cuda" for tensor in model or tensor_leaves((args, kwargs)))
    return ([devices.CUDA_PROVIDER] if on_gpu else []) + ["CPUExecutionProvider"]


def _dtype(dtype: Any) -> DType:
    return numpy_dtype(dtype) if isinstance(dtype, torch.dtype) else np.dtype(dtype)


def _calls(
    model: Model,
    args: tuple[Any, ...] | None,
    samples: Iterable[tuple[Any, ...]] | None,
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
    return map(_checked, samples), dict(kwargs or {})


def _checked(call: tuple[Any, ...]) -> tuple[Any, ...]:
    check_tuple("verify", call)
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
