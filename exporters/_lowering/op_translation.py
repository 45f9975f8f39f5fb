"""Translations to one node, of an Op or of an onnxscript function, and the check of what translations return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np
import torch
from onnx_ir.schemas import AttributeParameter
from onnxscript import OnnxFunction, evaluator

from pyops import Op
from pyops._core import Attribute, AttributeKind

from .._torch.private.onnx_exporter import emit_call
from .._torch.private.operators import Argument, OpOverload, describe, qualified_name, schema_arguments, schema_returns
from ..errors import ExportError
from . import emission_record
from .node_emission import emit, refuse_symbolic


def op_translation(target: OpOverload, op: Op[..., Any]) -> Callable[..., Any]:
    """Return a translation of a torch operator to one node of an Op.

    A torch argument becomes the attribute of the same name if the Op has one, and otherwise the next
    input if it is a tensor or has the name of an input. Any other argument must have its default value.

    Raises
    ------
    ExportError
        The signatures do not match: a required argument, input or attribute has no counterpart, or the numbers of
        outputs differ.
    """
    arguments = schema_arguments(target)
    attributes = {item.name for item in op.signature.attributes}
    inputs = [item for item in arguments if item.name not in attributes and _is_input(item, op)]
    _check(target, op, inputs)

    def translation(*args: Any, **kwargs: Any) -> Any:
        # torch omits arguments that equal its defaults, from which the Op's may differ.
        values = {item.name: item.default for item in arguments if item.has_default}
        values |= {**dict(zip((item.name for item in arguments), args, strict=False)), **kwargs}
        for item in arguments:
            if item in inputs or item.name in attributes or values[item.name] == item.default:
                continue
            raise ExportError(
                f"{qualified_name(target)}: the model passes {item.name}={values[item.name]!r}, which "
                f"{op.signature} does not take; declare an attribute {item.name!r}"
            )
        tensors: list[Any] = []
        for item in inputs:
            value = values[item.name]
            tensors += value if isinstance(value, (list, tuple)) else [value]
        return emit(op, tensors, {name: value for name, value in values.items() if name in attributes})

    return translation


def _is_input(item: Argument, op: Op[..., Any]) -> bool:
    return item.is_tensor or item.name in {declared.name for declared in op.signature.inputs}


def _check(target: OpOverload, op: Op[..., Any], inputs: list[Argument]) -> None:
    signature = op.signature
    arguments = schema_arguments(target)
    returned = schema_returns(target)
    problems = []
    variadic = bool(signature.inputs) and signature.inputs[-1].variadic
    required = len([item for item in signature.inputs if not item.optional and not item.variadic])
    if len(inputs) < required or (len(inputs) > len(signature.inputs) and not variadic):
        names = ", ".join(item.name for item in inputs)
        problems.append(
            f"torch passes {len(inputs)} tensors ({names}), {signature.name} has {len(signature.inputs)} inputs"
        )
    for position, item in enumerate(inputs):
        if item.is_tensor_list and not (variadic and position >= len(signature.inputs) - 1):
            problems.append(f"{item.name} is a list of tensors, which only a variadic input (*xs) takes")
    unclaimed = {item.name for item in arguments}
    for attribute in signature.attributes:
        if attribute.required and attribute.name not in unclaimed:
            problems.append(f"torch has no argument for the required attribute {attribute.name!r}")
        unclaimed.discard(attribute.name)
    for item in arguments:
        if item.name in unclaimed and item not in inputs and not item.has_default:
            problems.append(f"torch always passes {item.name}, and {signature.name} has no attribute of that name")
    tensors_returned = ["variadic" if "List" in item else "single" for item in returned]
    if tensors_returned != ["variadic" if item.variadic else "single" for item in signature.outputs]:
        problems.append(f"torch returns ({', '.join(returned)}), {signature.name} has {len(signature.outputs)} outputs")
    if problems:
        raise ExportError(
            f"{signature} cannot translate {describe(target)}: {'; '.join(problems)}; register a "
            f"function that calls exporters.opset({signature.domain!r}, {signature.version}).{signature.name}(...)"
        )


class _Calls:
    """An onnxscript evaluator that validates and records the calls of functions, for another one that emits nodes."""

    def __init__(self, emitting: evaluator.Evaluator) -> None:
        self._emitting = emitting

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emitting, name)

    def eval_function(self, function: OnnxFunction[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Emit a node that calls an onnxscript function.

        Parameters
        ----------
        args, kwargs
            Arguments of the function: graph values and Python numbers for its inputs, constants for
            its attributes. An omitted argument has the function's default.

        Raises
        ------
        ExportError
            Another function has the same name, or an attribute's value is known only when the model runs.
        InputError
            A value does not have its attribute's type.
        """
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        assert function.op_signature is not None
        for item in function.op_signature.params:
            if isinstance(item, AttributeParameter) and given.get(item.name) is not None:
                refuse_symbolic(f"{function.opset.domain}::{function.name}", item.name, given[item.name])
                given[item.name] = Attribute(item.name, AttributeKind[item.type.name]).convert(given[item.name])
        recording = emission_record.current()
        if recording is not None:
            recording.functions.add(function)
        return emit_call(self._emitting, function, given, adds=recording is None)


def called_as_nodes() -> AbstractContextManager[Any]:
    """Return a context manager in which a call of an onnxscript function emits one node, recorded by `emission`."""
    return evaluator.default_as(cast(evaluator.Evaluator, _Calls(evaluator.default())))


# Graph values of either exporter are instances of none of these.
_NO_NODES = (type(None), complex, str, np.ndarray, np.generic, torch.Tensor)
_NUMBERS = (bool, int, float)


def check_returned(target: OpOverload, result: Any) -> None:
    """Validate the number and type of the values that a translation returned.

    Raises
    ------
    ExportError
        The result is not one graph value per tensor that the operator returns.
    """
    declared = schema_returns(target)
    tensors = all("Tensor" in item for item in declared)
    listed = len(declared) == 1 and "List" in declared[0]
    several = isinstance(result, (list, tuple))
    values = result if several else [result]
    # If the operator returns a number, torch accepts a constant as well.
    wrong = (*_NO_NODES, *_NUMBERS) if tensors else _NO_NODES
    fitting = several if listed else len(values) == len(declared) and several == (len(declared) > 1)
    if fitting and not any(isinstance(value, wrong) for value in values):
        return
    expected = "a list of values" if listed else "one value" if len(declared) == 1 else f"{len(declared)} values"
    raise ExportError(
        f"the translation of {qualified_name(target)} returned {_describe(result)}; return {expected} of the graph, as "
        f"exporters.opset(...) returns them, for {describe(target)}"
    )


def _describe(result: Any) -> str:
    if isinstance(result, (list, tuple)):
        return f"a {type(result).__name__} of {len(result)}"
    return repr(result) if result is None or isinstance(result, (bool, int, float, str)) else type(result).__name__
