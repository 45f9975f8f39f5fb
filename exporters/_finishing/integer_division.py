"""Integer divisions that would end the process in ONNX Runtime, or that it computes in float64.

Its Div of int32 and int64, and before 1.32 its Mod, execute the processor's division, which raises a signal for the
smallest integer and -1. Before 1.32, it computes Mod of int64 with ``fmod=1`` in float64.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
from onnx_ir import DataType
from onnx_ir.convenience import get_const_tensor
from onnx_ir.passes.common import InlinePass, NameFixPass, ShapeInferencePass

from pyops._onnx.schema_registration import register_schemas

# Where a division may trap, its node becomes a call of a function, which is inlined.
_DOMAIN = "pyops.division"
_FUNCTION = """<domain: "pyops.division", opset_import: ["" : {opset}]>
{name} ({operands}) => (z) {{ {body} }}"""
# No elements may be divided by 0, which ONNX Runtime refuses: as many divisors as dividends, then.
_SPREAD = "shape = Shape(x) y = Expand(number, shape) "
_BY_MINUS_ONE = {"Div": "z = Mul(x, y)", "Mod": "one = Abs(y) z = Mod(x, one)"}
# Looking for what is rare takes less time than dividing safely. In the one pair that traps, a divisor of 1 instead of
# -1 gives what torch gives: the smallest integer, which has no negative, and no remainder.
_GUARDED = """lowest = Constant<value = {dtype} {{{lowest}}}>()
    {is_rare}
    z = If(is_rare)<
        then_branch = safe () => ({dtype}[] z1) {{
            minus_one = Constant<value = {dtype} {{-1}}>()
            is_lowest = Equal(x, lowest) is_minus_one = Equal(y, minus_one) traps = And(is_lowest, is_minus_one)
            one = Abs(minus_one) divisor = Where(traps, one, y)
            {safe}
        }},
        else_branch = usual () => ({dtype}[] z2) {{ z2 = {usual}(x, y) }}
    >"""
_HAS_LOWEST = "least = ReduceMin<keepdims = 0>(x) is_rare = Equal(least, lowest)"
# float64 holds every integer below 2**53. The norm is no smaller than the largest dividend, but for rounding.
_IS_LARGE = """floats = Cast<to = 1>(x) norm = ReduceL2<keepdims = 0>(floats)
    limit = Constant<value = float {4503599627370496.0}>() is_rare = Greater(norm, limit)"""
_SAFE_FMOD = "times = Div(x, divisor) whole = Mul(times, divisor) z1 = Sub(x, whole)"

# Operators that compute sizes from sizes, with the number of inputs that are sizes.
_OF_SIZES: dict[str, int | None] = {"Shape": 0, "Size": 0, "Concat": None}
_OF_SIZES |= dict.fromkeys(("Add", "Div", "Max", "Min", "Mod", "Mul"), 2)
_OF_SIZES |= dict.fromkeys(("Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"), 1)


def guard_divisions(model: onnx_ir.Model) -> None:
    """Let no integer division of a model end the process or differ from torch's; change the model in place.

    Functions are inlined if one of them divides integers so, because only its calls give it an element type.
    """
    if model.functions:
        whole = model.clone()
        InlinePass()(whole)
        if len(_guards(whole)) > len(_guards(model)):
            InlinePass()(model)
    guards = _guards(model)
    for number, (node, body) in enumerate(guards.items()):
        node.domain, node.op_type = _DOMAIN, f"Guarded{number}"
        node.attributes.clear()
        operands = "x, number" if body.startswith(_SPREAD) else "x, y"
        text = _FUNCTION.format(opset=model.opset_imports[""], name=node.op_type, operands=operands, body=body)
        function = onnx_ir.serde.deserialize_function(onnx.parser.parse_function(text))
        model.functions[function.identifier()] = function
    if guards:
        InlinePass(lambda function: function.domain == _DOMAIN)(model)
        NameFixPass()(model)


def _guards(model: onnx_ir.Model) -> dict[onnx_ir.Node, str]:
    """Return the bodies of functions that are to replace divisions."""
    found = _divisions(model)
    if any(_dtype(node) is None for node in found):
        typed = model.clone()
        with register_schemas():
            ShapeInferencePass()(typed)
        for node, same in zip(found, _divisions(typed), strict=True):
            node.outputs[0].type = same.outputs[0].type
    return {node: body for node in found if (body := _guard(node)) is not None}


def _divisions(model: onnx_ir.Model) -> list[onnx_ir.Node]:
    return [node for node in model.graph.all_nodes() if not node.domain and node.op_type in ("Div", "Mod")]


def _guard(node: onnx_ir.Node) -> str | None:
    safe, (x, y), dtype = _safe(node), node.inputs, _dtype(node)
    if dtype is None or not dtype.is_integer() or not _is_spread(x, y):
        return safe
    fmod = "<fmod = 1>" if node.attributes.get_int("fmod", 0) else ""
    return _SPREAD + (safe or f"z = {node.op_type}{fmod}(x, y)")


def _is_spread(dividends: onnx_ir.Value | None, divisor: onnx_ir.Value | None) -> bool:
    """Return whether several numbers, or none, are divided by one that may be 0."""
    if dividends is None or divisor is None or divisor.shape is None or len(divisor.shape):
        return False
    found = _constant(divisor)
    return (found is None or found == 0) and bool(dividends.shape is None or len(dividends.shape))


def _safe(node: onnx_ir.Node) -> str | None:
    """Return a division that neither ends the process nor differs from torch's, or None if the node's is one."""
    (x, y), dtype, usual = node.inputs, _dtype(node), node.op_type
    is_fmod = bool(node.attributes.get_int("fmod", 0))
    if dtype != DataType.INT64 and (dtype != DataType.INT32 or is_fmod):
        return None
    is_rare, safe = _HAS_LOWEST, f"z1 = {usual}(x, divisor)"
    if is_fmod:
        is_rare, safe, usual = _IS_LARGE, _SAFE_FMOD, "Mod<fmod = 1>"
    else:
        dividends, divisors = _constant(x), _constant(y)
        has_lowest = dividends is None or (dividends == dtype.min).any()
        has_minus_one = divisors is None or (divisors == -1).any()
        if not (has_lowest and has_minus_one) or _is_from_sizes(x) or _is_from_sizes(y):
            return None
        if divisors is not None and (divisors == -1).all():
            return _BY_MINUS_ONE[usual]
    return _GUARDED.format(dtype=dtype.name.lower(), lowest=dtype.min, is_rare=is_rare, safe=safe, usual=usual)


def _dtype(node: onnx_ir.Node) -> DataType | None:
    return next((value.dtype for value in (*node.inputs, *node.outputs) if value and value.dtype), None)


def _constant(value: onnx_ir.Value | None) -> np.ndarray | None:
    found = get_const_tensor(value) if value else None
    return found.numpy() if found else None


def _is_from_sizes(value: onnx_ir.Value | None) -> bool:
    """Return whether a value is computed from sizes and constants so that it is neither negative nor very large."""
    pending = [value]
    for item in pending:  # which grows
        found, node = _constant(item), item.producer() if item else None
        if found is not None and ((found >= 0) & (found < 2**30)).all():
            continue
        if node is None or node.domain or node.op_type not in _OF_SIZES:
            return False
        pending += [operand for operand in node.inputs[: _OF_SIZES[node.op_type]] if operand not in pending]
    return True
