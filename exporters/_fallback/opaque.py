"""torch operators that represent calls of others in a graph; torch does not decompose them, and each becomes a node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import onnx_ir
import torch

from .._library import library
from .._library.values import Pairs
from .._lowering.nodes import emit, opset
from .._lowering.translations import NoTranslationError
from .._torch.operators import find_overload
from .._torch.tensors import as_onnx_array, as_pairs
from .._torch_private.operators import OpOverload, qualified_name
from .._torch_private.trees import present_leaves
from . import calls, fakes, kernel


@dataclass(frozen=True)
class Call:
    """A call of a torch operator, without its tensors."""

    operator: str  # "ns::name.overload"
    arguments: str  # encoded by `calls.encode`
    outputs: int  # number of tensors that it returns
    number: int | None = None  # distinguishes equal calls of a random operator
    by_torch: bool = False  # call torch even if an op of `pyops.kernels` supports the call

    @property
    def name(self) -> str:
        """Return the operator's name without namespace and overload."""
        return self.operator.partition("::")[2].partition(".")[0]

    @property
    def target(self) -> OpOverload:
        """Return the operator."""
        found = find_overload(self.operator)
        assert found is not None
        return found


def spell(call: Call) -> str:
    """Return a call as text, the first argument of the fallback operators."""
    return json.dumps(asdict(call))


@lru_cache(maxsize=4096)
def _read(text: str) -> Call:
    return Call(**json.loads(text))


def _compute(text: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    # Dense and in memory of their own, like the results of the kernel.
    return [
        item.clone(memory_format=torch.contiguous_format) for item in _run(_read(text), tensors, sizes, kernel.call)
    ]


def _fake(text: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    call = _read(text)
    results = _run(call, tensors, sizes, fakes.FAKES.get(call.operator, kernel.call))
    # A clone would check whether the tensor is dense, which fixes a size of one as a constant.
    return [torch.empty(item.shape, dtype=item.dtype, device=item.device) for item in results]


def _run(
    call: Call, tensors: Sequence[torch.Tensor], sizes: Sequence[int], function: Callable[[OpOverload, Any], Any]
) -> list[torch.Tensor]:
    values = calls.decode(call.arguments, [*tensors, *sizes], complex=torch.view_as_complex)
    results = calls.flat(function(call.target, values))
    return list(map(as_pairs, results))


_NAMESPACE = "pyops_fallback"
_library = torch.library.Library(_NAMESPACE, "FRAGMENT")
_defined: dict[str, OpOverload] = {}


def one_output(name: str) -> OpOverload:
    """Return the fallback operator for calls of the operator `name` that return one tensor.

    There is one for each name, because torch names a graph's values after the operators that compute them.
    """
    return _define(name, "Tensor", lambda *given: _compute(*given)[0], lambda *given: _fake(*given)[0])


def several_outputs(name: str) -> OpOverload:
    """Return the fallback operator for calls of the operator `name` that return any number of tensors."""
    return _define(f"{name}.several", "Tensor[]", _compute, _fake)


def _define(name: str, returned: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> OpOverload:
    if name not in _defined:
        _library.define(f"{name}(str call, Tensor[] tensors, SymInt[] sizes) -> {returned}")
        _library.impl(name, compute, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=_library)
        found = find_overload(f"{_NAMESPACE}::{name}")
        assert found is not None
        _defined[name] = found
    return _defined[name]


@dataclass(frozen=True)
class Backends:
    """What may compute the calls of an export: the ops of `pyops.kernels`, and nodes that call torch."""

    kernels: bool
    torch: bool


_emission: ContextVar[tuple[Backends, set[str]]] = ContextVar("emission")


@contextmanager
def emitting_with(backends: Backends) -> Iterator[set[str]]:
    """Context manager: set the backends of an export, and yield the set of calls that became nodes that call torch.

    The calls are in the set as text, from `spell`.
    """
    left_to_torch: set[str] = set()
    token = _emission.set((backends, left_to_torch))
    try:
        yield left_to_torch
    finally:
        _emission.reset(token)


def _emit(text: str, tensors: Sequence[Any], sizes: Sequence[Any]) -> Any:
    call, inputs = _read(text), [*tensors, *sizes]
    if not inputs:  # a constant of the model
        return opset("", 18).Constant(value=onnx_ir.tensor(as_onnx_array(_compute(text, (), ())[0])))
    backends, left_to_torch = _emission.get()
    if backends.kernels and not call.by_torch:
        try:
            emitted = _emit_kernel(call, inputs)
            if emitted is not NotImplemented:
                return emitted
        except NoTranslationError:
            if not backends.torch:
                raise
    if not backends.torch:
        raise NoTranslationError(f"pyops.kernels does not support this call of {call.operator}")
    left_to_torch.add(text)
    attributes = {
        "overload_name": kernel.overload_name(call.target),
        "arguments": call.arguments,
        "call": call.number,
    }
    return emit(kernel.op_of(call.target), inputs, attributes, call.outputs)


def _emit_kernel(call: Call, inputs: Sequence[Any]) -> Any:
    result = library.emit(call.target, calls.decode(call.arguments, inputs, complex=Pairs))
    if result is NotImplemented:
        return result
    flat = present_leaves(result)
    return flat if call.outputs > 1 else flat[0]


def _emit_list(text: str, tensors: Sequence[Any], sizes: Sequence[Any]) -> Any:
    result = _emit(text, tensors, sizes)
    return result if _read(text).outputs > 1 else [result]


def translation_table() -> dict[OpOverload, Callable[..., Any]]:
    """Return the translations of the fallback operators defined so far."""
    return {target: _emit_list if name.endswith(".several") else _emit for name, target in _defined.items()}


def is_fallback(target: Any) -> bool:
    """Return whether a node's target is a fallback operator."""
    return target in _defined.values()


def called_operator(node: torch.fx.Node) -> str:
    """Return the qualified name of the operator that a node with a fallback operator calls."""
    return qualified_name(_read(node.args[0]).target)  # type: ignore[arg-type] # it is an operator
