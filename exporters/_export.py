"""Export of a torch model to ONNX, and its verification: either may call the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal, TypedDict, Unpack

import torch

from pyops import Op
from pyops import replace as replace_nodes
from pyops._core import ModelSource
from pyops._support.progress import progress
from pyops._tolerances import tolerances_by_name
from pyops.errors import warn

from . import _pipeline as pipeline
from ._capture.capture_modes import Capture, check_capture
from ._capture.model_arguments import as_tuple, check_model, split_arguments, to_onnx_inputs
from ._capture.preparation import Example, Model, check_example
from ._finishing.finish import Finishing, check_custom_opsets
from ._finishing.model_bodies import add_bodies
from ._finishing.value_guards import guard
from ._program import Program
from ._report import VerificationReport
from ._torch.private.onnx_exporter import shapes_of_axes
from ._torch.private.operators import OpOverload
from ._torch.private.patching import one_at_a_time, quiet
from ._torchscript import torchscript_export as torchscript_exporter
from ._verify import calls_of, compared, evaluation
from .errors import ExportError


class TorchArguments(TypedDict, total=False):
    """Arguments that `export` passes to ``torch.onnx.export``, which documents them."""

    kwargs: dict[str, Any] | None
    verbose: bool | None
    input_names: Sequence[str] | None
    output_names: Sequence[str] | None
    opset_version: int | None
    external_data: bool
    dynamic_shapes: dict[str, Any] | tuple[Any, ...] | list[Any] | None
    custom_translation_table: Mapping[Callable[..., Any], Callable[..., Any]] | None
    report: bool
    optimize: bool
    verify: bool | None
    profile: bool
    dump_exported_program: bool
    artifacts_dir: str | os.PathLike[str]
    export_params: bool
    keep_initializers_as_inputs: bool
    dynamic_axes: Mapping[str, Mapping[int, str]] | Mapping[str, Sequence[int]] | None
    training: torch.onnx.TrainingMode
    operator_export_type: torch.onnx.OperatorExportTypes
    do_constant_folding: bool
    custom_opsets: Mapping[str, int] | None
    export_modules_as_functions: bool | Collection[type[torch.nn.Module]]
    autograd_inlining: bool


@one_at_a_time
def export(
    model: Model,
    args: tuple[Any, ...] | torch.Tensor = (),
    f: str | os.PathLike[str] | None = None,
    *,
    dynamo: bool = True,
    keep_functions: bool = False,
    kernels: bool = True,
    fallback: bool | Literal["verify"] = False,
    capture: Capture = "export",
    guards: bool = False,
    fill_missing: bool = False,
    bodies: bool = False,
    replace: Sequence[Op[..., Any]] = (),
    **arguments: Unpack[TorchArguments],
) -> Program:
    """Export a model as ``torch.onnx.export`` does, with every registration applied.

    Registrations are those of `custom_op` and `register_translation`. An export that takes longer than two seconds
    shows its progress in a terminal or a notebook, if rich is installed; nothing else is printed unless ``verbose`` is
    True.

    Parameters
    ----------
    model : torch.nn.Module or torch.export.ExportedProgram
        Call ``model.eval()`` first.
    args : tuple or torch.Tensor
        Example arguments; a tensor is the only one.
    f : path, optional
        Where to save the model as well.
    dynamo : bool
        False selects the TorchScript exporter, with the same registrations. It takes ``dynamic_axes``
        instead of ``dynamic_shapes``.
    keep_functions : bool
        Keep the onnxscript functions of `register_translation` as functions of the model; otherwise, and if
        one of them divides integers by a tensor, they are inlined.
    kernels : bool
        Export operators that torch's exporter does not support, and calls that it translates wrongly, as nodes
        of the ops in `pyops.kernels`. If False, an unsupported operator is an error. Ignored with ``dynamo=False``.
    fallback : bool or "verify"
        Export calls that are still unsupported as nodes that call torch. A process that runs the model then needs
        torch and must call `register_fallback`. ``"verify"`` also runs each distinct call in ONNX Runtime on the
        example arguments, and lets those that fail or give wrong values fall back. ``program.fallbacks`` lists
        what fell back. Ops that have only a CUDA kernel get a body, as with `bodies`.
    capture : str
        What to do with Python code that depends on values, which ``torch.export`` cannot capture. ``"export"``: raise
        an error that names the line. ``"trace"``: record what the model does for the example arguments; branches,
        loop counts and sizes are specialized to the example. ``"auto"``: specialize as little as possible. The first
        of these that succeeds is used: ``torch.export``, the same specialized to the values of parameters and buffers,
        ``torch.export.draft_export`` (not with `guards`), a trace. ``program.decisions`` lists what was specialized,
        and a warning names it.
    guards : bool
        Let standard nodes of the exported model raise an error, in every runtime, if a specialized value that depends
        on the inputs would differ; ``program.decisions`` tells which ones are guarded.
    fill_missing : bool
        Whether the model will run with ``pyops.InferenceSession(model, fill_missing=True)``: ``fallback="verify"`` and
        ``verify=True`` then run it in this way. Operators for which ONNX Runtime has no kernel need not fall back.
    bodies : bool
        Add a function to the model for each op that it calls, from the op's decomposition, so that it runs without
        pyops too. A warning names the ops that have no decomposition.
    replace : sequence of Op
        Ops that replace nodes of the exported model, as by `pyops.replace`, with the example arguments as inputs;
        ``program.replaced`` is its report. They have bodies with `bodies`.
    **arguments
        As for ``torch.onnx.export``: ``kwargs``, ``dynamic_shapes``, ``input_names``,
        ``opset_version``, ... A ``custom_translation_table`` wins over the registrations.
        ``custom_opsets`` maps domains to the versions that the model imports of them.
        By default, ``verify=None``, what was captured is compared in torch with the model, for the example arguments;
        ``program.unverified`` says why it was not, for example because the model draws random numbers. ``verify=True``
        also compares the exported model, by `exporters.verify`; ``verify=False`` compares nothing.

    Returns
    -------
    Program
        A ``torch.onnx.ONNXProgram``: ``program.save(path)``, ``program.model_proto``; calling it
        with torch tensors runs it in a `pyops.InferenceSession`.

    Raises
    ------
    ExportError
        The model cannot be exported as it stands, or a comparison found a difference.
    Exception
        Whatever else torch's exporter or a translation raises.

    Examples
    --------
    >>> import exporters, torch
    >>> model = torch.nn.Linear(3, 2).eval()
    >>> program = exporters.export(model, (torch.zeros(1, 3),), dynamic_shapes=({0: "batch"},))
    >>> program(torch.zeros(5, 3))[0].shape
    torch.Size([5, 2])
    >>> program.save("model.onnx")  # doctest: +SKIP
    """
    check_model("export", model)
    args = as_tuple("export", args)
    verified = arguments.pop("verify", None)
    saving = {
        "include_initializers": arguments.pop("export_params", True),
        "keep_initializers_as_inputs": arguments.pop("keep_initializers_as_inputs", False),
        "external_data": arguments.pop("external_data", True),
    }
    args, kwargs = split_arguments(model, args, arguments.get("kwargs"))
    given: dict[str, Any] = {name: value for name, value in arguments.items() if name != "kwargs"}
    _check_comparisons(verified, fallback, dynamo)
    check_capture(capture, model, dynamo, guards)
    opsets, optimize = given.pop("custom_opsets", None) or {}, given.pop("optimize", dynamo)
    check_custom_opsets(opsets)
    finishing = Finishing(keep_functions, opsets, optimize)
    with ExitStack() as stack:
        if not given.get("verbose"):  # torch prints its own messages instead
            stack.enter_context(quiet())
            stack.enter_context(progress("exporting the model"))
        if not dynamo:
            program = torchscript_exporter.export(model, args, kwargs, finishing, **given)
            program.unverified = "dynamo=False"
        else:
            example = _example(model, args, kwargs, given, guard() if guards else None)
            request = pipeline.Request(
                kernels,
                bool(fallback),
                capture,
                finishing,
                given,
                compared=verified is not False,
                verified=fallback == "verify",
                fill_missing=fill_missing,
            )
            program = pipeline.export(example, request)
        if bodies or fallback:
            add_bodies(program.model, lambda op: bodies or "cpu" not in op.device_types)
        if replace:
            _replace(program, args, kwargs, replace, bodies)
    if verified:
        brings_arguments = isinstance(model, torch.export.ExportedProgram) and not args
        _check_outputs(model, None if brings_arguments else args, kwargs, program, fill_missing)
    if f is not None:
        program.save(f, **saving)
    return program


def _replace(
    program: Program,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None,
    ops: Sequence[Op[..., Any]],
    bodies: bool,
) -> None:
    arrays = to_onnx_inputs(program, *args, **kwargs or {})
    replaced = replace_nodes(program, ops, inputs=arrays or None, bodies=bodies)
    program.model, program.replaced = replaced.graph_model, replaced


def _check_comparisons(verified: Any, fallback: Any, dynamo: bool) -> None:
    if verified not in (None, True, False):
        raise ExportError(f"verify is {verified!r}; expected None, True or False")
    if fallback not in (False, True, "verify"):
        raise ExportError(f'fallback is {fallback!r}; expected False, True or "verify"')
    if fallback and not dynamo:
        raise ExportError("fallback= needs the exporter that is built on torch.export; leave out dynamo=False")


def _check_outputs(
    model: Model, args: tuple[Any, ...] | None, kwargs: dict[str, Any] | None, program: Program, fill_missing: bool
) -> None:
    report = verify(model, args, program, kwargs=kwargs or None, fill_missing=fill_missing)
    if not report.ok:
        raise ExportError(f"the exported model does not compute what the torch model does\n{report}")


def _example(
    model: Model, args: tuple[Any, ...], kwargs: dict[str, Any], arguments: Any, guard: OpOverload | None
) -> Example:
    """Take the sizes that are to be dynamic out of the arguments, and return them with the model and its arguments."""
    shapes, axes = arguments.pop("dynamic_shapes", None), arguments.pop("dynamic_axes", None)
    if axes and isinstance(model, torch.nn.Module):
        shapes, args, kwargs = shapes_of_axes(model, args, kwargs, axes, arguments)
    if isinstance(model, torch.nn.Module) and model.training:
        warn(
            "Exporting a model while it is in training mode, in which dropout draws random numbers and batch "
            "normalization uses the statistics of the batch; call model.eval() first"
        )
    example = Example(model, args, kwargs, shapes, guard, arguments.get("verbose") is True)
    check_example(example)
    return example


@one_at_a_time
@quiet()
@progress("verifying the model")
def verify(
    model: Model,
    args: tuple[Any, ...] | torch.Tensor | None = None,
    program: ModelSource | None = None,
    *,
    samples: Iterable[tuple[Any, ...] | torch.Tensor] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    tolerances: Mapping[Any, tuple[float, float]] | None = None,
    fill_missing: bool = False,
    locate: bool = False,
) -> VerificationReport:
    """Compare what torch and ONNX Runtime compute for a model.

    The model runs in evaluation mode and without gradients, on copies of the arguments; its
    training mode is restored. ONNX Runtime runs on the device of the model's tensors, CPU or GPU.

    Parameters
    ----------
    model : torch.nn.Module or torch.export.ExportedProgram
        The model, or the ExportedProgram captured from it.
    args : tuple or torch.Tensor, optional
        Positional arguments; by default the example inputs of an ExportedProgram.
    program : ONNXProgram, ModelProto, path or bytes, optional
        The exported model. By default the model is exported with the first sample.
    samples : iterable of tuples, optional
        Several tuples of positional arguments, in place of `args`; consumed lazily.
    kwargs : mapping, optional
        Keyword arguments of every call, in the order in which the model was exported with them.
    tolerances : mapping, optional
        ``(rtol, atol)`` by dtype (NumPy's or torch's). Other dtypes use the tolerances of
        ``torch.testing.assert_close``; integers must be equal. Without `tolerances`, an output may also differ by ten
        times what torch itself rounds: by how much the program in torch differs from itself in float64.
    fill_missing : bool
        Compute nodes for which ONNX Runtime has no kernel, as the argument of `pyops.InferenceSession` does.
    locate : bool
        Compare each value within the model with that of the torch call that it comes from, without ONNX Runtime's
        optimizations, and find the first node that is wrong if outputs differ. ``report.location`` has both.

    Returns
    -------
    VerificationReport
        ``report.ok`` is the verdict, ``report.outputs`` has one comparison per sample and output, and
        ``str(report)`` is a table of them.

    Raises
    ------
    ExportError
        `model` is not a model; the arguments are missing, given twice, or do not match the program's inputs in number.
    InputError
        `tolerances` are not pairs of numbers by dtype.
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
    check_model("verify", model)
    allowed = tolerances_by_name(tolerances)
    calls, keywords = calls_of(model, args, samples, kwargs)
    first = next(calls, None)
    if first is None:
        raise ExportError("verify got no samples; pass at least one tuple of arguments")
    with evaluation(model):
        if program is None:
            program = export(model, first, kwargs=keywords, fill_missing=fill_missing, verify=False)
        return compared(model, first, calls, keywords, program, allowed, fill_missing, locate)
