"""Checks of the sizes on which a capture depends: standard nodes that raise an error in every runtime.

An index is out of bounds where a condition does not hold. It is on the way from an input to the outputs, so that no
optimization removes it, and the name of the node that fails says what was expected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnx_ir
from onnx_ir import DataType, Value
from onnx_ir.tape import Tape

from .._capture.graph_calls import format_place
from .._capture.sizes import SizeCondition

_INT, _FLOAT, _BOOL = DataType.INT64, DataType.DOUBLE, DataType.BOOL


def add_size_checks(model: onnx_ir.Model, conditions: Iterable[SizeCondition]) -> list[SizeCondition]:
    """Let a model raise an error where the sizes of its inputs violate a condition; change it in place.

    Returns
    -------
    list of SizeCondition
        The conditions that standard nodes can compute.
    """
    graph = model.graph
    possible = list(filter(_is_possible, conditions))
    # What is asked of two sizes that are equal has one name.
    named = {f"expected {condition.text}, {format_place(condition.place)}": condition for condition in possible}
    checked: dict[Value, list[str]] = {}
    for name, condition in named.items():
        value = graph.inputs[min(condition.sizes.values())[0]]
        checked.setdefault(value if value.uses() else graph.outputs[0], []).append(name)
    for value, names in checked.items():
        users, tape, zeros = list(value.uses()), Tape(), []
        for name in names:
            table, index = _constant(tape, [0]), _index(tape, named[name], graph.inputs)
            zeros.append(tape.op("Gather", [table, index], name=name))
        # No optimizer knows that the axis is 0, and neither node copies the tensor.
        axis = functools.reduce(lambda x, y: tape.op("Add", [x, y]), zeros)
        result = tape.op("Squeeze", [tape.op("Unsqueeze", [value, axis]), _constant(tape, [0])])
        result.type, result.shape = value.type, value.shape
        if value.is_graph_output():
            result.name, value.name = value.name, f"{value.name}_unchecked"
            graph.outputs[0] = result
            graph.extend(tape.nodes)
        else:
            for user, position in users:
                user.replace_input_with(position, result)
            graph.insert_before(graph[0], tape.nodes)
    return possible


def _is_possible(condition: SizeCondition) -> bool:
    try:
        _index(Tape(), condition, [Value()] * (max(condition.sizes.values())[0] + 1))
    except LookupError:
        return False
    return True


def _index(tape: Tape, condition: SizeCondition, inputs: Sequence[Value]) -> Value:
    """Return an index of a table with one item, which is out of bounds if a condition is violated."""
    violation = condition.violation
    if type(violation).__name__ == "Unequality":
        x, y = (_computed(tape, item, condition, inputs) for item in violation.args)
        if x.dtype == y.dtype == _INT:
            is_remainder = "Mod" in type(violation.lhs).__name__ and violation.rhs == 0
            return x if is_remainder else tape.op("Abs", [tape.op("Sub", [x, y])])
    return _cast(tape, _computed(tape, violation, condition, inputs), _INT)


def _computed(tape: Tape, expression: Any, condition: SizeCondition, inputs: Sequence[Value]) -> Value:
    """Return the value of a SymPy expression, an array of one element."""
    if expression.is_Symbol:
        number, dim = condition.sizes[str(expression)]
        return _typed(tape.op("Shape", [inputs[number]], {"start": dim, "end": dim + 1}), _INT)
    if expression.is_Integer:
        return _constant(tape, [int(expression)])
    if expression.is_Number:
        return _constant(tape, [float(expression)])
    operands = [_computed(tape, item, condition, inputs) for item in expression.args]
    return _FUNCTIONS[type(expression).__name__](tape, *operands)


def _constant(tape: Tape, items: list[Any]) -> Value:
    dtype = _FLOAT if isinstance(items[0], float) else _INT
    return _typed(tape.op("Constant", [], {"value": onnx_ir.tensor(items, dtype)}), dtype)


def _typed(value: Value, dtype: DataType) -> Value:
    value.dtype = dtype
    return value


def _cast(tape: Tape, value: Value, dtype: DataType) -> Value:
    return value if value.dtype == dtype else _typed(tape.op("Cast", [value], {"to": dtype}), dtype)


def _folding(operator: str, dtype: DataType | None = None, floats: bool = False) -> Callable[..., Value]:
    """Return a function that calls an operator of two inputs on operands of one type, from left to right."""

    def fold(tape: Tape, *operands: Value) -> Value:
        kinds = {_FLOAT} if floats else {item.dtype for item in operands}
        if _FLOAT in kinds:
            operands = tuple(_cast(tape, item, _FLOAT) for item in operands)
        result = functools.reduce(lambda x, y: tape.op(operator, [x, y]), operands)
        return _typed(result, dtype or (_FLOAT if _FLOAT in kinds else _INT))

    return fold


def _casting(operator: str, dtype: DataType = _INT) -> Callable[..., Value]:
    """Return a function that calls an operator of one input on float64, and casts the result."""
    return lambda tape, x: _cast(tape, _typed(tape.op(operator, [_cast(tape, x, _FLOAT)]), _FLOAT), dtype)


def _floor_div(tape: Tape, x: Value, y: Value) -> Value:
    rounded = _typed(tape.op("Sub", [x, tape.op("Mod", [x, y])]), _INT)
    return _typed(tape.op("Div", [rounded, y]), _INT)


# By the names of SymPy's classes and torch's.
_FUNCTIONS: dict[str, Callable[..., Value]] = {
    **{name: _folding(name) for name in ("Add", "Mul", "Max", "Min", "Mod")},
    **{name: _folding(name, _BOOL) for name in ("And", "Or")},
    "PythonMod": _folding("Mod"),
    "FloorDiv": _floor_div,
    "CleanDiv": _floor_div,
    **dict.fromkeys(("IntTrueDiv", "FloatTrueDiv"), _folding("Div", floats=True)),
    "FloatPow": _folding("Pow", floats=True),
    **dict.fromkeys(("PowByNatural", "Pow"), _folding("Pow")),
    "ToFloat": lambda tape, x: _cast(tape, x, _FLOAT),
    "TruncToInt": lambda tape, x: _cast(tape, x, _INT),
    "FloorToInt": _casting("Floor"),
    "CeilToInt": _casting("Ceil"),
    "RoundToInt": _casting("Round"),
    "OpaqueUnaryFn_sqrt": _casting("Sqrt", _FLOAT),
    "Equality": _folding("Equal", _BOOL),
    "Unequality": lambda tape, x, y: _typed(tape.op("Not", [_folding("Equal")(tape, x, y)]), _BOOL),
    "StrictLessThan": _folding("Less", _BOOL),
    "LessThan": _folding("LessOrEqual", _BOOL),
    "StrictGreaterThan": _folding("Greater", _BOOL),
    "GreaterThan": _folding("GreaterOrEqual", _BOOL),
    "Not": lambda tape, x: _typed(tape.op("Not", [x]), _BOOL),
}
