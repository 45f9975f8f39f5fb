"""Fallback nodes: their emission, and their kernels, which call torch's operators on ONNX Runtime's arrays.

There is one Op for each torch operator, declared when a model names it, in a process that called
`register_fallback`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from pyops import Op
from pyops._core import Attribute, AttributeKind, Input, Output, Signature, TypeParameter, find_op, register_provider
from pyops._support.element_types import DType
from pyops.errors import InputError, ModelError, OutputError

from .._lowering.node_emission import emit
from .._torch.private.operators import OpOverload, describe, overloads, qualified_name, schema_arguments
from .._torch.private.trees import flatten, present_leaves
from .._torch.tensors import TORCH_DTYPES, as_array, as_pairs, numpy_dtype, sharing_tensor
from ..errors import ExportError
from . import allowed_operators, argument_checks, call_encoding

# The element types that both torch and ONNX Runtime have.
_DTYPES: tuple[DType, ...] = tuple(numpy_dtype(item) for item in TORCH_DTYPES.values() if not item.is_complex)


def register_fallback(*namespaces: str) -> None:
    """Let every `pyops.InferenceSession` of this process run the torch operators that fell back in an export.

    A model only names operators; `exporters._fallback.allowed_operators` decides which ones it may name: functional
    operators that take and return tensors. ``exporters.export(..., fallback=True)`` calls this function.

    Parameters
    ----------
    *namespaces : str
        Namespaces of torch other than aten, for custom operators that fell back.

    Raises
    ------
    ExportError
        torch has no such namespace.

    Examples
    --------
    >>> import exporters, pyops
    >>> exporters.register_fallback()
    >>> session = pyops.InferenceSession("model.onnx")  # doctest: +SKIP
    """
    known = allowed_operators.namespaces()
    for namespace in ("aten", *namespaces):
        if namespace not in known:
            raise ExportError(
                f"torch has no operators in the namespace {namespace!r}; import the module that registers them first"
            )
        register_provider(domain(namespace), functools.partial(_NamespaceProvider, namespace))


def domain(namespace: str) -> str:
    """Return the ONNX domain of a torch namespace; all but aten get a prefix, to avoid users' own domains."""
    return namespace if namespace == "aten" else f"torch.{namespace}"


def op_of(overload: OpOverload) -> Op[..., Any]:
    """Return the Op whose nodes call a torch operator.

    Raises
    ------
    ExportError
        Another op is declared under its domain and name.
    """
    name = qualified_name(overload)
    namespace, _, rest = name.partition("::")
    op = find_op(domain(namespace), rest.partition(".")[0], 1)
    if op is None or not isinstance(op.signature.attribute("arguments"), _Arguments):
        raise ExportError(f"{name} cannot fall back: another op is declared with its domain and name; rename that op")
    return op


class _NamespaceProvider:
    """A provider of the operators of one torch namespace as Ops."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def provide(self, name: str) -> Op[..., Any]:
        found = self._overloads(name)
        targets = {overload_name(overload): overload for overload, reason in found if not reason}
        if not targets:
            reasons = dict.fromkeys(reason for _, reason in found)
            raise ModelError(
                "; ".join(reasons) or f"torch {torch.__version__} has no operator {self.namespace}::{name}"
            )
        signature = _signature(domain(self.namespace), name, tuple(targets))

        def kernel(*inputs: Any, overload_name: str, arguments: str, call: int | None = None) -> tuple[Any, ...]:
            return run(targets[overload_name], arguments, inputs)

        kernel.__name__ = kernel.__qualname__ = name
        kernel.__doc__ = "\n".join(map(describe, targets.values()))
        return Op(signature, kernel)

    def _overloads(self, name: str) -> list[tuple[OpOverload, str]]:
        try:
            found = overloads(f"{self.namespace}::{name}")
        except ExportError:
            return []
        return [(overload, allowed_operators.reason_against(overload, {self.namespace})) for overload in found]


def overload_name(overload: OpOverload) -> str:
    """Return the overload's name without the operator's, ``"default"`` for the default one."""
    return qualified_name(overload).partition(".")[2] or "default"


@dataclass(frozen=True)
class _Arguments(Attribute):
    """The JSON of a call, validated when a model is loaded."""

    def convert(self, value: Any) -> Any:
        text = super().convert(value)
        call_encoding.parse(text)
        return text


def _signature(domain: str, name: str, choices: tuple[str, ...]) -> Signature:
    return Signature(
        domain,
        name,
        1,
        (Input("inputs", TypeParameter("T", _DTYPES), variadic=True, homogeneous=False),),
        (Output("outputs", TypeParameter("U", _DTYPES), variadic=True, homogeneous=False),),
        (
            Attribute("overload_name", AttributeKind.STRING, choices=choices),
            _Arguments("arguments", AttributeKind.STRING),
            # Distinguishes equal calls of a random operator, which optimizations would merge.
            Attribute("call", AttributeKind.INT, required=False),
        ),
        returns_tuple=True,
    )


def run(target: OpOverload, arguments: str, inputs: Sequence[np.ndarray[Any, Any]]) -> tuple[Any, ...]:
    """Call a torch operator on arrays; complex tensors are pairs along a last dimension.

    Raises
    ------
    InputError
        The arguments do not match the inputs, or refer to memory beyond them.
    OutputError
        The operator returned a tensor that is not dense.
    Exception
        Any exception of torch.
    """
    name = qualified_name(target).partition(".")[0]
    with torch.no_grad():
        try:
            values = call_encoding.decode(arguments, inputs, tensor=sharing_tensor, complex=_complex, size=_integer)
            argument_checks.check(describe(target), values)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        results = present_leaves(_call(target, values))
    return tuple(_array(target, result, inputs) for result in results)


# In exported graphs, running statistics of half precision are float32; on a CPU torch returns half precision.
_BATCH_NORMS = {"aten::_batch_norm_with_update_functional", "aten::_native_batch_norm_legit_functional"}


def _call(target: OpOverload, values: dict[str, Any]) -> Any:
    result = target(**values)
    if qualified_name(target) in _BATCH_NORMS:
        *others, mean, variance = result
        return *others, *(item.to(torch.promote_types(item.dtype, torch.float32)) for item in (mean, variance))
    return result


def _complex(array: np.ndarray[Any, Any]) -> torch.Tensor:
    if array.dtype not in (np.float16, np.float32, np.float64) or array.shape[-1:] != (2,):
        raise InputError(
            f"a complex input has pairs of floats along its last dimension; got {array.dtype} of shape {array.shape}"
        )
    return torch.view_as_complex(sharing_tensor(array))


def _integer(array: np.ndarray[Any, Any]) -> int:
    if array.dtype.kind not in "iu" or array.size != 1:
        raise InputError(f"a size is one integer; got {array.dtype} of shape {array.shape}")
    return int(array.item())


def _array(target: OpOverload, tensor: torch.Tensor, inputs: Sequence[np.ndarray[Any, Any]]) -> Any:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise OutputError(f"{qualified_name(target)} returned a tensor that is not dense ({tensor.layout})")
    array = as_array(as_pairs(tensor))
    # Without the copy, an output that is a view of an input would share the caller's memory.
    return array.copy() if any(np.may_share_memory(array, item) for item in inputs) else array


def emit_fallback(
    node: Node, target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], number: int | None
) -> Any:
    """Emit a node that calls torch, and return its outputs: the tensors of the call, flattened.

    Parameters
    ----------
    node, target
        The call, and the operator that it means.
    args, kwargs
        The arguments of the call as torch's exporter passes them, with graph values for tensors and sizes.
    number : int, optional
        Distinguishes equal calls of a random operator.

    Raises
    ------
    ExportError
        Another op is declared under the node's domain and name.
    """
    register_fallback(target.namespace)
    values = dict(zip(flatten((node.args, node.kwargs)), flatten((args, kwargs)), strict=True))
    inputs = node.all_input_nodes
    declared = schema_arguments(target)
    optional = {item.name for item in declared if item.has_default and item.default is None}
    arguments = {item.name: value for item, value in zip(declared, node.args, strict=False)} | dict(node.kwargs)
    given = {name: value for name, value in arguments.items() if value is not None or name not in optional}
    attributes = {
        "overload_name": overload_name(target),
        "arguments": call_encoding.encode(given, inputs, [call_encoding.tag(item.meta["val"]) for item in inputs]),
        "call": number,
    }
    outputs = len(present_leaves(node.meta["val"]))
    results = emit(op_of(target), [values[item] for item in inputs], attributes, outputs)
    return results if outputs > 1 else [results]
