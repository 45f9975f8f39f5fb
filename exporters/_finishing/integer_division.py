"""Integer divisions that would end the process in ONNX Runtime, or that it computes in float64.

Its Div of int32 and int64, and before 1.32 its Mod, execute the processor's division, which raises a signal for the
smallest integer and -1. Before 1.32, it computes Mod of int64 with ``fmod=1`` in float64.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir
from onnx_ir import DataType
from onnx_ir.convenience import get_const_tensor
from onnx_ir.passes.common import InlinePass, NameFixPass, ShapeInferencePass

# Where a division may trap, its node becomes a call of a function, which is inlined.
_DOMAIN = "pyops.division"
_FUNCTION = """<domain: "pyops.division", opset_import: ["" : {opset}]>
{name} (x, y) => (z) {{ {body} }}"""
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
_PARTS = {
    "Div": (_HAS_LOWEST, "z1 = Div(x, divisor)", "Div"),
    "Mod": (_HAS_LOWEST, "z1 = Mod(x, divisor)", "Mod"),
    "Fmod": (_IS_LARGE, "times = Div(x, divisor) whole = Mul(times, divisor) z1 = Sub(x, whole)", "Mod<fmod = 1>"),
}

# Operators that compute sizes from sizes, with the number of inputs that are sizes.
_OF_SIZES = {"Shape": 0, "Size": 0, "Concat": None, **dict.fromkeys(("Add", "Div", "Max", "Min", "Mod", "Mul"), 2)}
_OF_SIZES |= dict.fromkeys(("Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"), 1)
_OF_DIFFERENCES = {**_OF_SIZES, "Neg": 1, "Sub": 2}


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
    found = _divisions(model)
    if any(_dtype(node) is None for node in found):
        typed = model.clone()
        ShapeInferencePass()(typed)
        for node, same in zip(found, _divisions(typed), strict=True):
            node.outputs[0].dtype = _dtype(same)
    return [node for node in found if not _is_safe(node)]


def _divisions(model: onnx_ir.Model) -> list[onnx_ir.Node]:
    return [node for node in model.graph.all_nodes() if not node.domain and node.op_type in ("Div", "Mod")]


def _is_safe(node: onnx_ir.Node) -> bool:
    (x, y), dtype = node.inputs, _dtype(node)
    if node.attributes.get_int("fmod", 0):
        return dtype != DataType.INT64
    if dtype not in (DataType.INT32, DataType.INT64):
        return True
    dividends, divisors = _constant(x), _constant(y)
    has_lowest = dividends is None or (dividends == dtype.min).any()
    has_minus_one = divisors is None or (divisors == -1).any()
    return not (has_lowest and has_minus_one) or _is_from(_OF_SIZES, 0, y) or _is_from(_OF_DIFFERENCES, -(2**30), x)


def _make_safe(node: onnx_ir.Node, model: onnx_ir.Model) -> None:
    operation = "Fmod" if node.attributes.get_int("fmod", 0) else node.op_type
    divisors, dtype = _constant(node.inputs[1]), _dtype(node)
    assert dtype is not None
    if operation != "Fmod" and divisors is not None and (divisors == -1).all():
        name, body = f"{operation}ByMinusOne", _BY_MINUS_ONE[operation]
    else:
        name, (is_rare, safe, usual) = f"{operation}_{dtype.name}", _PARTS[operation]
        body = _GUARDED.format(dtype=dtype.name.lower(), lowest=dtype.min, is_rare=is_rare, safe=safe, usual=usual)
    text = _FUNCTION.format(opset=model.opset_imports[""], name=name, body=body)
    function = onnx_ir.serde.deserialize_function(onnx.parser.parse_function(text))
    model.functions[function.identifier()] = function
    node.domain, node.op_type = _DOMAIN, name
    node.attributes.clear()


def _dtype(node: onnx_ir.Node) -> DataType | None:
    return next((value.dtype for value in (*node.inputs, *node.outputs) if value and value.dtype), None)


def _constant(value: onnx_ir.Value | None) -> np.ndarray | None:
    found = get_const_tensor(value) if value else None
    return found.numpy() if found else None


def _is_from(operators: Mapping[str, int | None], least: int, value: onnx_ir.Value | None) -> bool:
    """Return whether a value is computed by these operators, from sizes and from constants that are not less."""
    pending = [value]
    for item in pending:  # which grows
        found, node = _constant(item), item.producer() if item else None
        if found is not None and ((found >= least) & (found < 2**30)).all():
            continue
        if node is None or node.domain or node.op_type not in operators:
            return False
        pending += [operand for operand in node.inputs[: operators[node.op_type]] if operand not in pending]
    return True
