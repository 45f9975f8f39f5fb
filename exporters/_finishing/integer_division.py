"""Integer divisions that would end the process in ONNX Runtime, or that it computes in float64.

Its Div of int32 and int64, and before 1.32 its Mod, execute the processor's division, which raises a signal for the
smallest integer and -1. Before 1.32, it computes Mod of 64 bits with ``fmod=1`` in float64.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
from onnx_ir.convenience import get_const_tensor
from onnx_ir.passes.common import InlinePass, NameFixPass, ShapeInferencePass

_DOMAIN = "pyops.division"

# Looking for what is rare takes less time than dividing safely. In the one pair that traps, a divisor of 1 instead of
# -1 gives what torch gives: the smallest integer, which has no negative, and no remainder.
_GUARDED = """<domain: "{domain}", opset_import: ["" : {opset}]>
{name} (x, y) => (z) {{
    lowest = Constant<value = {dtype} {{{lowest}}}>()
    {rare}
    z = If(is_rare)<
        then_branch = safe () => ({dtype}[] z1) {{
            one = Constant<value = {dtype} {{1}}>()
            minus_one = Constant<value = {dtype} {{-1}}>()
            is_lowest = Equal(x, lowest)
            is_minus_one = Equal(y, minus_one)
            traps = And(is_lowest, is_minus_one)
            divisor = Where(traps, one, y)
            {safe}
        }},
        else_branch = usual () => ({dtype}[] z2) {{ z2 = {usual}(x, y) }}
    >
}}"""
_HAS_LOWEST = "least = ReduceMin<keepdims = 0>(x) is_rare = Equal(least, lowest)"
# float64 holds every integer up to 2**53, and the norm is at least the largest dividend, but for rounding.
_IS_LARGE = """floats = Cast<to = 1>(x) norm = ReduceL2<keepdims = 0>(floats)
    half = Constant<value = float {4503599627370496.0}>() is_rare = Greater(norm, half)"""
_BODIES = {
    "Div": (_HAS_LOWEST, "z1 = Div(x, divisor)", "Div"),
    "Mod": (_HAS_LOWEST, "z1 = Mod(x, divisor)", "Mod"),
    "Fmod": (_IS_LARGE, "times = Div(x, divisor) whole = Mul(times, divisor) z1 = Sub(x, whole)", "Mod<fmod = 1>"),
}

_SMALL = 2**30
_MOVING = {"Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"}
_OF_SIZES = _MOVING | {"Add", "Concat", "Div", "Max", "Min", "Mod", "Mul", "Shape", "Size"}


def guard_divisions(model: onnx_ir.Model) -> None:
    """Let no integer division of a model end the process or differ from torch's; change the model in place.

    Functions are inlined if one of them divides integers so, because only its calls give it an element type.
    """
    if model.functions:
        whole = model.clone()
        InlinePass()(whole)
        if len(_unsafe(whole)) > len(_unsafe(model)):
            InlinePass()(model)
    unsafe = _unsafe(model)
    for node in unsafe:
        _make_safe(node, model)
    if unsafe:
        InlinePass(lambda function: function.domain == _DOMAIN)(model)
        NameFixPass()(model)


def _unsafe(model: onnx_ir.Model) -> list[onnx_ir.Node]:
    nodes = [node for node in model.graph.all_nodes() if not node.domain and node.op_type in ("Div", "Mod")]
    if any(_dtype(node) is None for node in nodes):
        ShapeInferencePass()(model)
    return [node for node in nodes if not _is_safe(node)]


def _is_safe(node: onnx_ir.Node) -> bool:
    (x, y), dtype = _operands(node), _dtype(node)
    if _is_fmod(node):
        return dtype not in (onnx_ir.DataType.INT64, onnx_ir.DataType.UINT64)
    if dtype not in (onnx_ir.DataType.INT32, onnx_ir.DataType.INT64):
        return True
    dividends, divisors = _constant(x), _constant(y)
    if divisors is not None and not (divisors == -1).any():
        return True
    if dividends is not None and not (dividends == dtype.min).any():
        return True
    return _is_from_sizes(y, signed=False) or _is_from_sizes(x, signed=True)


def _make_safe(node: onnx_ir.Node, model: onnx_ir.Model) -> None:
    (x, y), dtype = _operands(node), _dtype(node)
    assert dtype is not None
    divisors = _constant(y)
    if _is_fmod(node) and not dtype.is_signed():
        node.attributes.pop("fmod")  # the same without signs
    elif _is_fmod(node) or divisors is None or not (divisors == -1).all():
        _call_guarded(node, dtype, model)
    elif node.op_type == "Div":
        node.op_type = "Mul"
    else:
        # ONNX Runtime computes this when it loads the model.
        one = onnx_ir.node("Abs", [y])
        one.outputs[0].dtype = dtype
        node.prepend(one)
        node.replace_input_with(1, one.outputs[0])


def _call_guarded(node: onnx_ir.Node, dtype: onnx_ir.DataType, model: onnx_ir.Model) -> None:
    """Turn a division into a call of a function of the model, which is to be inlined."""
    operation = "Fmod" if _is_fmod(node) else node.op_type
    name = f"{operation}_{dtype.name}"
    rare, safe, usual = _BODIES[operation]
    text = _GUARDED.format(
        domain=_DOMAIN,
        opset=model.opset_imports[""],
        name=name,
        dtype=dtype.name.lower(),
        lowest=dtype.min,
        rare=rare,
        safe=safe,
        usual=usual,
    )
    function = onnx_ir.serde.deserialize_function(onnx.parser.parse_function(text))
    model.functions[function.identifier()] = function
    node.domain, node.op_type = _DOMAIN, name
    node.attributes.clear()


def _dtype(node: onnx_ir.Node) -> onnx_ir.DataType | None:
    return next((value.dtype for value in (*_operands(node), *node.outputs) if value.dtype is not None), None)


def _operands(node: onnx_ir.Node) -> tuple[onnx_ir.Value, onnx_ir.Value]:
    x, y = node.inputs
    assert x is not None and y is not None
    return x, y


def _is_fmod(node: onnx_ir.Node) -> bool:
    return bool(node.attributes.get_int("fmod", 0))


def _constant(value: onnx_ir.Value) -> np.ndarray | None:
    found = get_const_tensor(value)
    return None if found is None else found.numpy()


def _is_from_sizes(value: onnx_ir.Value, *, signed: bool) -> bool:
    """Return whether an integer is computed from sizes and small constants, and so is not the smallest one.

    Unless it may be signed, it is not negative either.
    """
    operators = {*_OF_SIZES, "Neg", "Sub"} if signed else _OF_SIZES
    pending, seen = [value], {value}
    while pending:
        value = pending.pop()
        node, found = value.producer(), _constant(value)
        if found is not None:
            if not ((found >= (1 - _SMALL if signed else 0)) & (found < _SMALL)).all():
                return False
        elif node is None or node.domain or node.op_type not in operators:
            return False
        elif node.op_type not in ("Shape", "Size"):
            used = node.inputs[:1] if node.op_type in _MOVING else node.inputs
            pending += [item for item in used if item is not None and item not in seen]
            seen.update(pending)
    return True
