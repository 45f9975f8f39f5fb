"""Private interfaces of torch's exporter that is built on ``torch.export``: how it captures and translates."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import traceback
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import onnx_ir
import torch
from onnxscript import OnnxFunction, evaluator
from onnxscript.values import Opset
from torch.export.graph_signature import ConstantArgument

from ...errors import ExportError
from .operators import OpOverload
from .patching import guarded, private, quiet, replaced
from .torch_export import graph_modules

_EXPORTER = "torch.onnx._internal.exporter"
_REGISTRY = f"{_EXPORTER}._registration.ONNXRegistry"
_RECORDER = f"{_EXPORTER}._building.OpRecorder"
_PREPARE = f"{_EXPORTER}._core._prepare_exported_program_for_export"
_DISPATCH = f"{_EXPORTER}._dispatching.dispatch"
_TYPES = f"{_EXPORTER}._core._TORCH_DTYPE_TO_ONNX"
_FIND = "torch.onnx._internal.fx.passes.type_promotion.find_compatible_op_overload"


Strategy = Literal["NonStrict", "Strict", "DraftExport"]
"""By Python code on fake tensors, by TorchDynamo, or by Python code on fake and real tensors."""


class UncapturedError(Exception):
    """A way of capturing failed; the cause is what torch or the model's code raised.

    Attributes
    ----------
    places : tuple of (str, int)
        The lines that asked for sizes until then.
    """

    places: tuple[tuple[str, int], ...] = ()


def by_strategy(
    strategy: Strategy,
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    verbose: bool,
) -> torch.export.ExportedProgram:
    """Capture a model by a strategy of torch's exporter.

    Raises
    ------
    UncapturedError
        torch or the model's code raises an exception.
    """
    run = private(f"{_EXPORTER}._capture_strategies.TorchExport{strategy}Strategy")(verbose=verbose)
    shapes, _ = private(f"{_EXPORTER}._dynamic_shapes.convert_str_to_export_dim")(dynamic_shapes)
    # The model's code may ask whether it is exported.
    exporting = private(f"{_EXPORTER}._flags.set_onnx_exporting_flag")(run.__call__)
    # torch's exporter does not assume that dynamic sizes are neither 0 nor 1, except in ``torch.export.draft_export``.
    patched = private("torch.fx.experimental._config.patch")(backed_size_oblivious=True)
    with _closed_logs(), patched, warnings.catch_warnings():
        # torch itself asks for the gradient of a tensor that autograd computed.
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor", UserWarning)
        result = exporting(model, args, kwargs, shapes)
    program: torch.export.ExportedProgram | None = result.exported_program
    if program is None:
        raise UncapturedError(f"torch.export fails: {result.exception}") from result.exception
    return program


@guarded("ONNXProgram._capture_strategy")
def record_strategy(program: torch.onnx.ONNXProgram, strategy: Strategy) -> None:
    """Record by which strategy a model was captured, for ``torch.onnx.testing.assert_onnx_program``."""
    assert hasattr(program, "_capture_strategy")
    program._capture_strategy = f"TorchExport{strategy}Strategy"


def report_failure(error: Exception, folder: str | os.PathLike[str]) -> None:
    """Write torch's report on a failed capture into a folder, as ``torch.onnx.export(report=True)`` does."""
    module = f"{_EXPORTER}._reporting"
    status = private(f"{module}.ExportStatus")(torch_export_non_strict=False)
    time = datetime.now().strftime("%Y-%m-%d_%H-%M-%S-%f")
    path = Path(folder, private(f"{module}.construct_report_file_name")(time, status))
    path.parent.mkdir(parents=True, exist_ok=True)
    write = private(f"{module}.create_torch_export_error_report")
    write(path, "".join(traceback.format_exception(error)), export_status=status, profile_result=None)


@contextmanager
def _closed_logs() -> Iterator[None]:
    """Context manager: close the files into which ``torch.export.draft_export`` logs, which it leaves open."""
    name = "torch.export._draft_export.CaptureStructuredTrace"
    make, made = private(name), []

    def making() -> Any:
        made.append(make())
        return made[-1]

    try:
        with replaced(name, making):
            yield
    finally:
        for handler in made:
            handler.close()


@guarded("ExportedProgram._report")
def draft_failures(program: torch.export.ExportedProgram) -> list[tuple[str, dict[str, Any]]]:
    """Return what ``torch.export.draft_export`` reports: the kind of failure, and what torch knows of it."""
    report: Any = program._report  # type: ignore[attr-defined] # draft_export alone sets it
    return [(str(item.failure_type), item.data) for item in report.failures]


def default_opset() -> int:
    """Return the opset version that torch exports to by default."""
    return int(private("torch.onnx._constants.ONNX_DEFAULT_OPSET"))


def shapes_of_axes(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], axes: Any, arguments: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Convert ``dynamic_axes`` to ``dynamic_shapes``.

    Parameters
    ----------
    arguments : mapping
        As for ``torch.onnx.export``: ``input_names`` and ``output_names``, which the axes refer to.

    Returns
    -------
    tuple
        The ``dynamic_shapes``, and the positional and keyword arguments of the model that they fit.
    """
    convert = private(f"{_EXPORTER}._dynamic_shapes.from_dynamic_axes_to_dynamic_shapes")
    outputs = set(arguments.get("output_names") or ())
    shapes: Any
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is deprecated", DeprecationWarning)
        shapes, values, _ = convert(
            model,
            args,
            kwargs,
            dynamic_axes=axes,
            input_names=arguments.get("input_names"),
            output_names=outputs,
        )
    if kwargs:  # the conversion made them positional
        names = inspect.signature(model.forward).parameters
        given = [name for index, name in enumerate(names) if index < len(args) or name in kwargs]
        return dict(zip(given, shapes, strict=True)), args, kwargs
    return shapes, values, {}


def lowest_opset() -> int:
    """Return the opset version of torch's own translations.

    torch's exporter converts nodes from this version, and treats older nodes as being of this version.
    """
    return int(private(f"{_EXPORTER}._constants.TORCHLIB_OPSET"))


@guarded("ONNXRegistry.get_decomps")
def own_translation(overload: OpOverload) -> Callable[..., Any] | None:
    """Return the function by which torch's exporter translates an operator on real tensors, or None.

    In a translation it is the one for the model's opset, elsewhere the one for the default opset.
    """
    opset: Opset | None = getattr(evaluator.default(), "opset", None)
    found = _torchlib(opset_version=default_opset() if opset is None else opset.version).get_decomps(overload)
    return next((item.onnx_function for item in found if not item.is_complex), None)


@functools.cache
def _torchlib(**arguments: Any) -> Any:
    """Return torch's registry of translations, extended by sizes of complex tensors."""
    with quiet():  # It logs for each operator of torchvision that torchvision is not installed.
        registry = _reading().__get__(None, private(_REGISTRY))(**arguments)
    # Complex tensors are pairs along a last dimension; the translations of their other sizes are the same.
    for name in ("aten::sym_size.int", "aten::sym_storage_offset"):
        found = registry.functions[name]
        registry.functions[name] = [*found, *(replace(item, is_complex=True) for item in found)]
    return registry


class RepeatedError(ExportError):
    """A `Lowering` has changed while calls were translated, so that the program must be decomposed again."""


class Lowering:
    """What decides how torch's exporter decomposes and translates calls; this base class leaves it to the exporter."""

    def prepare(self, captured: torch.export.ExportedProgram, exporter: Exporter) -> torch.export.ExportedProgram:
        """Return the captured program, decomposed as far as it should be."""
        return exporter.decompose(captured, (), ())

    def translation(self, node: torch.fx.Node, exporter: Exporter) -> Callable[..., Any] | None:
        """Return the function that translates a call of the prepared program, or None if there is none."""
        return exporter.translation(node)


class Exporter:
    """torch's exporter in one export, for a `Lowering`."""

    def __init__(self, registry: Any, prepare: Callable[..., Any], dispatch: Callable[..., Any]) -> None:
        self._registry, self._prepare, self._dispatch = registry, prepare, dispatch
        self._own = _torchlib(opset_version=registry.opset_version)

    def decompose(
        self, captured: torch.export.ExportedProgram, kept: Iterable[OpOverload], wrong: Container[object]
    ) -> torch.export.ExportedProgram:
        """Return the program with torch's decompositions, except those of operators that are translated or in `kept`.

        Those in `wrong` are decomposed although torch's exporter translates them. It is decomposed without gradients,
        because some operators have no formula for them.
        """
        registry = copy.copy(self._registry)
        registry.functions = {target: [SimpleNamespace(fx_target=target)] for target in kept} | {
            name: found
            for name, found in registry.functions.items()
            if found[0].is_custom or _packet(found[0].fx_target) not in wrong
        }
        forget_pending_sizes(captured)
        for node in [node for module in graph_modules(captured).values() for node in module.graph.nodes]:
            if node.target is torch.ops.aten.clamp.default and any(isinstance(bound, float) for bound in node.args):
                # torch's exporter converts bounds of one type only.
                node.args = tuple(float(bound) if isinstance(bound, int) else bound for bound in node.args)
            elif _packet(node.target) is torch.ops.aten.isin:
                _convert_compared(node)
            elif _packet(node.target) in (torch.ops.aten.huber_loss, torch.ops.aten.soft_margin_loss):
                _keep_type(node, captured)
        # With dynamic sizes, torch infers the shape of nll_loss by a function that takes the reduction for another
        # argument.
        table, nll_loss = private("torch._decomp.decomposition_table"), torch.ops.aten.nll_loss.default
        wrong_shape = table.pop(nll_loss, None)
        try:
            with torch.no_grad():
                prepared: torch.export.ExportedProgram = self._prepare(captured, registry=registry)
        finally:
            if wrong_shape is not None:
                table[nll_loss] = wrong_shape
        return prepared

    def translation(self, node: torch.fx.Node) -> Callable[..., Any] | None:
        """Return the function that translates a call, of the user's table or torch's own, or None."""
        return self._dispatch(node, self._registry)[0]  # type: ignore[no-any-return] # torch's own

    def own_translation(self, node: torch.fx.Node) -> Callable[..., Any] | None:
        """Return torch's own function that translates a call, or None."""
        return self._dispatch(node, self._own)[0]  # type: ignore[no-any-return] # torch's own


def _keep_type(call: torch.fx.Node, captured: torch.export.ExportedProgram) -> None:
    """Convert the result of a call to the type of its first argument, which torch's decomposition may widen."""
    dtype = call.all_input_nodes[0].meta["val"].dtype
    if call.meta["val"].dtype != dtype and not any(user.target is torch.ops.aten.to.dtype for user in call.users):
        with call.graph.inserting_after(call):
            kept = call.graph.call_function(torch.ops.aten.to.dtype, (call, dtype))
        kept.meta = {**call.meta, "val": call.meta["val"].to(dtype)}
        call.replace_all_uses_with(kept, delete_user_cb=lambda user: user is not kept)
        if call.graph is captured.graph:
            captured.graph_signature.replace_all_uses(call.name, kept.name)


def _convert_compared(call: torch.fx.Node) -> None:
    """Convert a number or a tensor without dimensions that `isin` compares to the type in which torch compares it.

    torch's decomposition gives it a dimension, after which its type counts as much as that of the others. From ten
    others on, torch sorts it among them and its type counts too. Where the number of the others is dynamic, a number is
    left as it is.
    """

    def value_of(item: Any) -> Any:
        return getattr(item, "meta", {}).get("val", item)

    def added(function: OpOverload, *arguments: Any) -> torch.fx.Node:
        with call.graph.inserting_before(call):
            node = call.graph.call_function(function, arguments)
        node.meta = {**call.meta, "val": function(*map(value_of, arguments))}
        return node

    aten = torch.ops.aten
    arguments = (*call.args, *call.kwargs.values())[:2]
    wanted = torch.result_type(*map(value_of, arguments))
    others = value_of(arguments[1])
    count = others.numel() if isinstance(others, torch.Tensor) else 1
    known = isinstance(count, int)
    if known and count >= 10:
        return
    for index, argument in enumerate(arguments):
        value = value_of(argument)
        if isinstance(value, (int, float)) and known:
            call.update_arg(index, torch.tensor(value).to(wanted).item())
        elif isinstance(argument, torch.fx.Node) and isinstance(value, torch.Tensor) and value.dtype != wanted:
            converted = added(aten.to.dtype, argument, wanted)
            if not known and not value.ndim:
                few = added(aten.lt.Scalar, added(aten.sum.default, added(aten.ones_like.default, arguments[1])), 10)
                converted = added(aten.where.self, few, converted, argument)
            call.replace_input_with(argument, converted)


@contextmanager
def adapted_exporter(lowering: Lowering) -> Iterator[None]:
    """Context manager: let torch's exporter, in this thread, ask a `Lowering` how it decomposes and translates.

    The exporter then also reads its translations from their sources once, not in every export, which saves most of the
    time of a small export; supports complex32 as pairs of float16, like other complex types; accepts a number before a
    tensor of another type, as in ``1.5 - indices``; and does not round numbers in float64 models to float32.
    """
    prepare, dispatch = private(_PREPARE), private(_DISPATCH)

    def from_torchlib(**arguments: Any) -> Any:
        # A copy, because an export adds the user's translations to its registry.
        registry = copy.copy(_torchlib(**arguments))
        registry.functions = {name: list(found) for name, found in registry.functions.items()}
        return registry

    def preparing(captured: torch.export.ExportedProgram, *, registry: Any) -> torch.export.ExportedProgram:
        return _with_its_outputs(lowering.prepare(captured, Exporter(registry, prepare, dispatch)))

    def dispatching_to(node: torch.fx.Node, registry: Any) -> tuple[Callable[..., Any] | None, str]:
        found = lowering.translation(node, Exporter(registry, prepare, dispatch))
        return (found, "") if found is not None else dispatch(node, registry)

    def element_type_of(dtype: torch.dtype) -> onnx_ir.DataType:
        # ONNX has no complex32, and the exporter does not use it either: complex tensors get the type of their parts.
        return onnx_ir.DataType.UNDEFINED if dtype is torch.complex32 else types[dtype]

    def finding(packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload:
        try:
            return find(packet, args, kwargs)
        except RuntimeError:  # unlike the operators, it accepts no number for a tensor
            return find(packet, (torch.empty(()), *args[1:]), kwargs)

    def calling(recorder: Any, signature: Any, inputs: dict[str, Any], attributes: dict[str, Any], count: int) -> Any:
        if isinstance(inputs.get("input"), float) and _casts_to_double(signature.name, inputs, attributes):
            inputs = {**inputs, "input": onnx_ir.tensor(inputs["input"], onnx_ir.DataType.DOUBLE)}
        return call(recorder, signature, inputs, attributes, count)

    call, types = private(f"{_RECORDER}._call_op"), private(_TYPES)
    find: Callable[..., OpOverload] = private(_FIND)
    _reading()  # cached before it is replaced
    with (
        replaced(f"{_REGISTRY}.from_torchlib", from_torchlib),
        replaced(_PREPARE, preparing),
        replaced(_DISPATCH, dispatching_to),
        replaced(f"{_EXPORTER}._core.torch_dtype_to_onnx_dtype", element_type_of),
        replaced(f"{_RECORDER}._call_op", calling),
        replaced(_FIND, finding),
    ):
        yield


def _packet(target: Any) -> Any:
    """Return an operator without its overload, or None for what is none."""
    return getattr(target, "overloadpacket", None)


def _with_its_outputs(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Let the signature of a program name what its graph returns.

    torch computes some float16 calls in float32 and converts the result, but the signature still names the unconverted
    one, which the exporter would make the model's output.
    """
    returned = next(iter(reversed(program.graph.nodes))).args[0]
    for spec, node in zip(program.graph_signature.output_specs, returned, strict=True):
        if isinstance(node, torch.fx.Node) and not isinstance(spec.arg, ConstantArgument):
            spec.arg.name = node.name
    return program


def _casts_to_double(operator: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> bool:
    """Return whether a node converts to float64."""
    to = attributes.get("to")
    if operator == "CastLike":
        to = getattr(inputs.get("target_type"), "dtype", None)
    return operator in ("Cast", "CastLike") and getattr(to, "value", to) == onnx_ir.DataType.DOUBLE


@guarded("ShapeEnv.pending_fresh_unbacked_symbols")
def forget_pending_sizes(captured: torch.export.ExportedProgram) -> None:
    """Forget the sizes that an earlier decomposition of a program left open, at which another one would fail."""
    for node in captured.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            mode.shape_env.pending_fresh_unbacked_symbols.clear()
            return


def set_type(value: onnx_ir.Value, tensor: torch.Tensor) -> None:
    """Give a graph value the element type and the shape of a tensor, as torch's exporter does for results."""
    private(f"{_EXPORTER}._core._set_shape_type")(value, tensor, complex_to_float=True)


@guarded("torch.onnx._internal.exporter._building.OpRecorder")
def undo_on_failure() -> AbstractContextManager[None]:
    """Return a context manager that removes the nodes emitted in the block if it raises an exception."""
    return _undone(evaluator.default())


@contextmanager
def _undone(recorder: Any) -> Iterator[None]:
    count, constants, functions = len(recorder.nodes), dict(recorder.constant_farm), dict(recorder.functions)
    try:
        yield
    except BaseException:  # an interrupt too must leave no node behind
        for node in recorder.nodes[count:]:
            for index in range(len(node.inputs)):
                node.replace_input_with(index, None)
        del recorder.nodes[count:]
        # torch keeps a constant for later calls, so those of the removed nodes must go too.
        for kept, before in ((recorder.constant_farm, constants), (recorder.functions, functions)):
            kept.clear()
            kept.update(before)
        raise


@functools.cache
def _reading() -> Any:
    """Return torch's own method that reads its translations; call this first before the method is replaced."""
    return vars(private(_REGISTRY))["from_torchlib"]


def element_type(dtype: torch.dtype) -> onnx_ir.DataType:
    """Return the ONNX type that a translation of torch's exporter gets for a dtype."""
    types: dict[torch.dtype, onnx_ir.DataType] = private(_TYPES)
    return types.get(dtype, onnx_ir.DataType.UNDEFINED)


@guarded("torch.onnx._internal.exporter._building.OpRecorder.eval_function")
def emit_call(recorder: Any, function: OnnxFunction[..., Any], arguments: Mapping[str, Any], adds: bool) -> Any:
    """Emit a node that calls an onnxscript function.

    Parameters
    ----------
    recorder
        The onnxscript evaluator of torch's exporter.
    adds : bool
        Whether torch's exporter adds the function to the model.
    """
    signature = function.op_signature
    assert signature is not None
    # torch counts the outputs by the return annotation, which a function need not have.
    any_type = onnx_ir.schemas.TypeConstraintParam.any_value
    outputs = [
        onnx_ir.schemas.Parameter(name, any_type(f"T_{name}"), required=True, variadic=False)
        for name in function.to_function_proto().output
    ]
    vars(function)["_pt_onnx_signature"] = onnx_ir.schemas.OpSignature(
        function.opset.domain, function.name, "", signature.params, outputs, function.opset.version
    )
    before = dict(recorder.functions)
    result = recorder.eval_function(function, (), arguments)
    if not adds:
        recorder.functions.clear()
        recorder.functions.update(before)
    return result


@contextmanager
def recorded_nodes(opset_version: int) -> Iterator[list[onnx_ir.Node]]:
    """Context manager: yield a list of the nodes emitted in the block, which are emitted as in torch's exporter."""
    recorder = private(_RECORDER)(Opset("", opset_version), {})
    with evaluator.default_as(recorder):
        yield recorder.nodes


@guarded("torch.onnx._internal.exporter._building.OpRecorder")
def recording() -> tuple[list[onnx_ir.Node], int]:
    """Return the nodes emitted so far in the current export, and the model's opset version."""
    recorder: Any = evaluator.default()
    return recorder.nodes, recorder.opset.version
