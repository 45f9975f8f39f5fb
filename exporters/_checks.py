"""Checks of an op as a PyTorch operator; `pyops.testing.check` finds them by their entry points."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pyops._core import AttributeKind
from pyops._support.element_types import dtype_name
from pyops.testing._case import IN_SESSIONS, Case, NotRun, check_after, quiet, where_available

from ._custom_op import custom_op, registered_for
from ._export import export, verify
from ._torch.decomposition_calls import decomposition_in_torch
from ._torch.private.trees import replace_leaves, tensor_leaves
from ._torch.tensors import TORCH_DTYPES, as_array, as_tensor, torch_dtype
from .errors import ExportError


@contextmanager
def _unlogged() -> Iterator[None]:
    """Context manager: keep torch's log out of the test's log, all of which pytest shows if the test fails."""
    before, trace = logging.root.manager.disable, logging.getLogger("torch.__trace")  # which ignores logging.disable
    logging.disable(max(before, logging.WARNING))
    trace.disabled = True
    try:
        yield
    finally:
        logging.disable(before)
        trace.disabled = False


@check_after(*IN_SESSIONS)
@_unlogged()
def torch_eager(case: Case) -> str:
    """Check that the torch operator returns what the plain call returns."""
    call = _TorchCall(case)
    with quiet():
        case.compare(list(map(as_array, call(*call.tensors))), case.outputs, "in torch")
    return f"as {call.name}"


@check_after("torch_eager", "symbolic_shapes")
@_unlogged()
def torch_opcheck(case: Case) -> None:
    """Check that torch.library.opcheck passes: the schema, fake tensors, autograd, and tracing with symbolic shapes."""
    call = _TorchCall(case)
    small = [str(tensor.dtype) for tensor in call.tensors if tensor.itemsize == 1 and tensor.is_floating_point()]
    if small:
        raise NotRun(f"opcheck computes with the inputs, and torch cannot in {small[0].removeprefix('torch.')}")
    # To opcheck, NaN differs from NaN.
    tensors = [tensor.masked_fill(tensor.isnan(), 0) if _has_nan(tensor) else tensor for tensor in call.tensors]
    with quiet():
        if any(map(_has_nan, call(*tensors))):
            raise NotRun("an output has NaN, and to opcheck NaN differs from NaN")
        results = torch.library.opcheck(call.operator, call.arguments(tensors), call.attributes, raise_exception=False)
    for name, result in results.items():
        if isinstance(result, Exception):
            raise AssertionError(f"opcheck's {name}: {result}") from result


@check_after("torch_eager")
@_unlogged()
def torch_gradients(case: Case) -> str:
    """Check that a registered backward formula agrees with numerical gradients."""
    call = _TorchCall(case)
    declared = case.signature.parameters(len(case.arrays))
    pairs = [(item, array) for item, array in zip(declared, case.arrays, strict=True) if array is not None]
    accepted = [item.type.dtypes for item, array in pairs if array.dtype.kind not in "iub"]
    dtype = next((dtype for dtype in map(np.dtype, ("f8", "f4")) if all(dtype in dtypes for dtypes in accepted)), None)
    if dtype is None:
        raise NotRun("it takes neither float64 nor float32 tensors, which numerical gradients need")
    tensors = [
        tensor.detach().to(torch_dtype(dtype), copy=True).requires_grad_() if tensor.is_floating_point() else tensor
        for tensor in call.tensors
    ]
    if not any(tensor.requires_grad for tensor in tensors):
        raise NotRun("no input has gradients")
    results = [result for result in call(*tensors) if result.requires_grad]
    if not results:
        raise NotRun("no output has gradients")
    try:
        torch.autograd.backward([result.sum() for result in results])
    except RuntimeError as error:
        if "autograd formula" not in str(error):
            raise
        raise NotRun(
            "no backward formula is registered (register_autograd on what exporters.custom_op returns)"
        ) from None
    # An input for which the formula returns None has no gradient, unless none has: then the formula is wrong.
    lacking = [tensor.requires_grad and tensor.grad is None for tensor in tensors]
    compared = [tensor.detach() if lacks else tensor for tensor, lacks in zip(tensors, lacking, strict=True)]
    if not any(tensor.requires_grad for tensor in compared):
        compared = tensors
    # Numerical gradients in float32 are accurate to about one percent.
    limits: dict[str, Any] = {} if dtype == np.float64 else {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2}
    with quiet():
        torch.autograd.gradcheck(lambda *given: tuple(call(*given)), tuple(compared), **limits)
    names = ", ".join(dict.fromkeys(item.name for (item, _), lacks in zip(pairs, lacking, strict=True) if lacks))
    notes = ["in float32, to within 0.01" if limits else "", f"the formula has none for {names}" if names else ""]
    return "; ".join(filter(None, notes))


@check_after("torch_eager", "engine_native")
@_unlogged()
def torch_export(case: Case) -> str:
    """Check that an exported model of the op returns in ONNX Runtime what it returns in torch."""
    call = _TorchCall(case)
    if not call.tensors:
        raise NotRun("it has no tensor among its inputs, so an exported model would be a constant")

    class Model(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(call(*tensors))

    model, args = Model().eval(), tuple(call.tensors)
    with quiet(), where_available():
        report = verify(model, args, export(model, args, verify=False))
    if not report.ok:
        raise AssertionError(str(report))
    return "to a model and back"


def _has_nan(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and bool(tensor.isnan().any())


class _TorchCall:
    """The case as a call of the op's torch operator: from tensors of the inputs that are present to a flat list."""

    def __init__(self, case: Case) -> None:
        op, signature = case.op, case.signature
        if op.shape_function is None and decomposition_in_torch(op) is None:
            raise NotRun("no shape function is registered, without which torch cannot trace it")
        tensor_attributes = [a.name for a in signature.attributes if a.kind is AttributeKind.TENSOR]
        if not set(tensor_attributes).isdisjoint(case.sample.attributes):
            raise NotRun(f"torch has no tensor attributes, such as {tensor_attributes[0]}")
        for array in (*case.arrays, *case.outputs):
            if array is not None and array.dtype.name not in TORCH_DTYPES:
                raise NotRun(f"torch has no tensors of {dtype_name(array.dtype)}")
        # Each op has a name of its own: a.b::C is not a_b::C.
        spelled = f"{op.domain}:{op.name}:{op.version}"
        name = "".join(char if char.isascii() and char.isalnum() else f"_{ord(char):x}_" for char in spelled)
        name = f"pyops_testing::{name}"
        try:
            self.name, self.operator = registered_for(op) or (name, custom_op(op, name))
        except ExportError as error:
            raise NotRun(str(error)) from None
        self.attributes = {name: value for name, value in case.sample.attributes.items() if value is not None}
        cpu = torch.device("cpu")
        given = [None if array is None else as_tensor(array, cpu) for array in case.arrays]
        self._arguments: tuple[Any, ...] = tuple(given)
        if signature.is_variadic:
            singles = len(signature.inputs) - 1
            given += [None] * (singles - len(given))
            self._arguments = (*given[:singles], given[singles:])
        self.tensors = tensor_leaves(given)

    def arguments(self, tensors: Any) -> tuple[Any, ...]:
        """Return the operator's positional arguments: None for an absent input, one list for a variadic input."""
        arguments: tuple[Any, ...] = replace_leaves(self._arguments, tensors)
        return arguments

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        return tensor_leaves(self.operator(*self.arguments(tensors), **self.attributes))
