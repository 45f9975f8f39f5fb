"""The rules of the normal form: what a node of each operator computes, as a term of the terms of its inputs.

A rule returns None for a node that it does not know; that node stays a call of its operator, as written.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir

from .normal_form import NormalForm, Rule, attribute
from .terms import ONE, PRODUCT, SIZE, Factor, Scaled
from .value_types import FLOATS, Dim, Types, is_wider, same_shape

_RULES: dict[str, Rule] = {}
_ARITHMETIC: dict[str, Callable[[NormalForm, onnx_ir.Node], Scaled | None]] = {}


def normal_form(
    graph: onnx_ir.Graph, types: Types, opset: int, attributes: Sequence[tuple[str, float]] = ()
) -> NormalForm:
    """Return the terms of the values of a graph; for the parameters, see `NormalForm`."""
    return NormalForm(graph, types, opset, _read, attributes)


def _read(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    if node.op_type in _ARITHMETIC and form.is_float(value):
        return _ARITHMETIC[node.op_type](form, node)
    return _RULES[node.op_type](form, node, value) if node.op_type in _RULES else None


def _arithmetic(*names: str) -> Callable[[Any], Any]:
    return lambda function: _ARITHMETIC.update(dict.fromkeys(names, function)) or function


def _rule(*names: str) -> Callable[[Any], Any]:
    return lambda function: _RULES.update(dict.fromkeys(names, function)) or function


@_arithmetic("Mul")
def _mul(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    a, b = form.operands(node, 1)
    return form.product((1, a), (1, b))


@_arithmetic("Div")
def _div(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    a, b = form.operands(node, 1)
    return form.product((1, a), (-1, b))


@_arithmetic("Neg")
def _neg(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    return _negative(form.of(node.inputs[0]))


@_arithmetic("Add", "Sum")
def _add(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    return form.terms.sum(form.operands(node, 0))


@_arithmetic("Sub")
def _sub(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    a, b = form.operands(node, 0)
    return form.terms.sum([a, _negative(b)])


@_arithmetic("Reciprocal")
def _reciprocal(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    return form.product((-1, form.of(node.inputs[0])))


@_arithmetic("Sqrt")
def _sqrt(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    return form.product((0.5, form.of(node.inputs[0])))


@_arithmetic("Pow")
def _pow(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    x, (power, term) = form.operands(node, 1)
    if term is not form.terms.unit or power.attributes or not power.number:
        return None
    return form.product((power.number, x))


@_arithmetic("Sigmoid")
def _sigmoid(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    return form.terms.sigmoid(form.of(node.inputs[0]))


def _negative(x: Scaled) -> Scaled:
    return x[0].times(Factor(-1.0)), x[1]


@_arithmetic("Erf")
def _erf(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    return _erf_of(form, form.of(node.inputs[0]))


def _erf_of(form: NormalForm, x: Scaled) -> Scaled:
    if x[0].number < 0:
        return _negative(_erf_of(form, _negative(x)))
    return ONE, form.terms.call("Erf", [x])


@_arithmetic("Exp")
def _exp(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    factor, term = x = form.of(node.inputs[0])
    softmax = form.terms.softmax_of_logarithm(x)
    if factor == ONE and term.op == "LogSoftmax":
        softmax = form.terms.softmax(term.args[0], term.attributes["axis"])
    return softmax or (ONE, form.terms.call("Exp", [x]))


@_arithmetic("Log")
def _log(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    factor, term = x = form.of(node.inputs[0])
    if factor == ONE and term.op == PRODUCT and len(term.args) == 1:
        ((power, inner),) = term.args
        if power % 2 or inner.is_positive:  # the logarithm of a square is one of negative numbers, too
            return Factor(power), form.terms.call("Log", [(ONE, inner)])
    return ONE, form.terms.call("Log", [x])


def _one_plus(form: NormalForm, x: Scaled) -> Scaled:
    return form.terms.sum([(ONE, form.terms.unit), x])


@_arithmetic("Tanh")
def _tanh(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    return _tanh_of(form, form.of(node.inputs[0]))


def _tanh_of(form: NormalForm, x: Scaled) -> Scaled:
    factor, term = form.terms.sigmoid((x[0].times(Factor(2.0)), x[1]))
    return form.terms.sum([(factor.times(Factor(2.0)), term), (Factor(-1.0), form.terms.unit)])


@_arithmetic("Softplus")
def _softplus(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    exp = ONE, form.terms.call("Exp", [form.of(node.inputs[0])])
    return ONE, form.terms.call("Log", [_one_plus(form, exp)])


@_arithmetic("Swish")
def _swish(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    x = form.of(node.inputs[0])
    alpha, _ = form.number(attribute(node, "alpha", 1.0))
    return form.product((1, x), (1, form.terms.sigmoid((x[0].times(alpha), x[1]))))


@_arithmetic("Gelu")
def _gelu(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    factor, term = x = form.of(node.inputs[0])
    if attribute(node, "approximate", "none") == "none":
        curve = _erf_of(form, (factor.times(Factor(math.sqrt(0.5))), term))
    else:
        cube, base = form.product((3, x))
        inner = form.terms.sum([x, (cube.times(Factor(0.044715)), base)])
        curve = _tanh_of(form, (inner[0].times(Factor(math.sqrt(2 / math.pi))), inner[1]))
    found, product = form.product((1, x), (1, _one_plus(form, curve)))
    return found.times(Factor(0.5)), product


@_arithmetic("LayerNormalization", "RMSNormalization")
def _normalization(form: NormalForm, node: onnx_ir.Node) -> Scaled | None:
    x, axis = form.of(node.inputs[0]), form.axis(node.inputs[0], attribute(node, "axis", -1))
    if axis is None or attribute(node, "stash_type", 1) != 1:
        return None
    axes = tuple(range(axis, 0))
    if node.op_type == "LayerNormalization":
        x = form.terms.sum([x, _negative(form.terms.call_reduced("ReduceMean", x, axes))])
    epsilon, _ = form.number(attribute(node, "epsilon", 1e-5))
    square = form.terms.call_reduced("ReduceMean", form.product((2, x)), axes)
    root = form.product((-0.5, form.terms.sum([square, (epsilon, form.terms.unit)])))
    found = form.product((1, x), (1, root), (1, form.of_broadcast(node.inputs[1], 1)))
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return found if bias is None else form.terms.sum([found, form.of_broadcast(bias, 0)])


@_rule("Relu", "Clip")
def _clip(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    """Return a value that is clipped at 0 from below as a maximum."""
    low, high = ([*node.inputs, None, None][1:3]) if node.op_type == "Clip" else (None, None)
    bound = form.constant(low)
    if node.op_type == "Clip" and (high is not None or bound is None or bound.item()):
        return None
    return ONE, form.terms.call("Max", [form.of(node.inputs[0]), (Factor(0.0), form.terms.unit)])


@_rule("Identity", "Max", "Min")
def _identity(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    found = {form.of(item) for item in node.inputs if item is not None}
    return found.pop() if len(found) == 1 else None


@_rule("Dropout")
def _dropout(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    training = node.inputs[2] if len(node.inputs) > 2 else None
    is_off = training is None or (form.constant(training) is not None and not form.constant(training))
    return form.of(node.inputs[0]) if is_off and not value.index() else None


@_rule("Cast", "CastLike")
def _cast(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    """Leave out a cast that changes nothing: to the same type, to a wider one, or back from that."""
    before, after, x = form.type(node.inputs[0]), form.type(value), form.of(node.inputs[0])
    if before is None or after is None:
        return None
    is_float = after.dtype.name in FLOATS
    is_number = x[1].op == SIZE or (x[1] is form.terms.unit and before.dtype.name in FLOATS)
    if before.dtype == after.dtype or (is_number and is_float):
        return x
    origin = form.origin(node.inputs[0])
    if origin is not None and (origin == after.dtype or is_wider(after.dtype, before.dtype)):
        form.origins[value] = origin
        return x
    return ONE, form.terms.call("Cast", [x], to=after.dtype.name)


@_rule("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2")
def _reduce(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    source, shape = node.inputs[0], form.shape(node.inputs[0])
    if shape is None or not form.is_float(value):
        return None
    counted = _axes(form, node)
    if counted is None:
        return None
    x = form.of(source)
    if node.op_type in ("ReduceSumSquare", "ReduceL2"):
        x = form.product((2, x))
    sizes = [_size(form, shape[axis]) for axis in counted]
    if node.op_type == "ReduceMean":
        found = form.terms.call_reduced("ReduceMean", x, counted)
    elif x[1].op != "Exp" and all(sizes):  # not those of a softmax
        mean = form.terms.call_reduced("ReduceMean", x, counted)
        found = form.product((1, mean), *((1, size) for size in sizes if size))
    else:
        found = form.terms.call_reduced("ReduceSum", x, counted)
    found = _kept(form, node, value, found, counted)
    return form.product((0.5, found)) if node.op_type == "ReduceL2" else found


def _size(form: NormalForm, dim: Dim) -> Scaled | None:
    """Return a size as a number, or as a term of its name; None if it is not known, or 0."""
    if not isinstance(dim, int):
        return None if dim is None else (ONE, form.terms.call(SIZE, (), dim=dim))
    return (Factor(float(dim)), form.terms.unit) if dim else None


def _kept(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value, reduced: Scaled, axes: Sequence[int]) -> Scaled:
    """Return a reduction, whose term keeps the reduced axes, without these if the node drops them."""
    shape = form.shape(node.inputs[0])
    if attribute(node, "keepdims", 1) or shape is None:
        return reduced
    kept = [1 if axis - len(shape) in axes else dim for axis, dim in enumerate(shape)]
    return _reshaped(form, reduced, kept, form.shape(value))


def _axes(form: NormalForm, node: onnx_ir.Node) -> tuple[int, ...] | None:
    """Return the axes of a reduction, counted from the last one; None if they are not known."""
    shape, axes = form.shape(node.inputs[0]), attribute(node, "axes")
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        given = form.constant(node.inputs[1])
        axes = None if given is None else given.tolist()
        if axes is None:
            return None
    if shape is None or (not axes and attribute(node, "noop_with_empty_axes", 0)):
        return None
    rank = len(shape)
    return tuple(sorted({axis - rank if axis >= 0 else axis for axis in axes or range(rank)}))


@_rule("Reshape", "Squeeze", "Unsqueeze", "Flatten")
def _reshape(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    return _reshaped(form, form.of(node.inputs[0]), form.shape(node.inputs[0]), form.shape(value))


def _reshaped(form: NormalForm, x: Scaled, before: Sequence[Any] | None, shape: Sequence[Any] | None) -> Scaled:
    """Return a term with the same elements in another shape."""
    factor, term = x
    if term.op == SIZE:
        return x
    if term.op == "Transpose" and before and shape and before[-2:] == shape[-2:] and None not in before[-2:]:
        last, order = len(before) - 1, tuple(range(len(shape)))
        if len(shape) > 1 and term.attributes["perm"] == (*range(last - 1), last, last - 1):  # of other axes
            inner = _reshaped(form, term.args[0], _swapped(before), _swapped(shape))
            return form.terms.transposed((factor, inner[1]), _swapped(order))
    if term.op == PRODUCT and len(term.args) == 1:
        ((power, base),) = term.args
        raised = form.product((power, _reshaped(form, (ONE, base), before, shape)))
        return factor.times(raised[0]), raised[1]
    if term.op == "Reshape":
        before, (_, term) = term.attributes["before"], term.args[0]
    if before is not None and shape is not None and same_shape(before, shape):
        return factor, term
    return factor, form.terms.call("Reshape", [(ONE, term)], _unique(shape), before=before, shape=shape)


def _swapped(items: Sequence[Any]) -> tuple[Any, ...]:
    """Return a sequence whose last two items have changed places."""
    return (*items[:-2], items[-1], items[-2])


def _unique(shape: Sequence[Dim] | None) -> object:
    """Return an object that tells a shape with unknown sizes from all others."""
    return object() if shape is None or None in shape else None


@_rule("Expand")
def _expand(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    before, shape = form.shape(node.inputs[0]), form.shape(value)
    factor, term = form.of(node.inputs[0])
    if before is not None and before == shape and None not in before:
        return factor, term
    return factor, form.terms.call("Expand", [(ONE, term)], _unique(shape), shape=shape)


@_rule("Transpose")
def _transpose(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    shape = form.shape(node.inputs[0])
    permutation = attribute(node, "perm") or (None if shape is None else range(len(shape))[::-1])
    return None if permutation is None else form.terms.transposed(form.of(node.inputs[0]), tuple(permutation))


@_rule("MatMul")
def _matmul(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    return _dot(form, *map(form.of, node.inputs))


def _dot(form: NormalForm, x: Scaled, y: Scaled) -> Scaled:
    return x[0].times(y[0]), form.terms.call("MatMul", [(ONE, x[1]), (ONE, y[1])])


@_rule("Einsum")
def _einsum(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    """Return the sum over one axis of two tensors, whose first axes are the same, as a product of matrices."""
    equation = attribute(node, "equation").replace(" ", "")
    terms, _, result = equation.partition("->")
    first, _, second = terms.partition(",")
    batch, x, y = first[:-2], first[-2:], second[-2:]
    summed = set(x) & set(y) - set(result)
    if "." in equation or not (second[:-2] == batch == result[:-2] and len(summed) == 1 and len({*x, *y}) == 3):
        return None
    order = (*range(len(batch)), len(batch) + 1, len(batch))
    a, b = map(form.of, node.inputs)
    a = a if x[1] in summed else form.terms.transposed(a, order)
    b = b if y[0] in summed else form.terms.transposed(b, order)
    product = _dot(form, a, b)
    return product if result[-2] in x else form.terms.transposed(product, order)


@_rule("Gemm")
def _gemm(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    x, y = (
        form.terms.transposed(form.of(item), (1, 0)) if attribute(node, name, 0) else form.of(item)
        for item, name in zip(node.inputs[:2], ("transA", "transB"), strict=True)
    )
    alpha, beta = (Factor(attribute(node, name, 1.0)) for name in ("alpha", "beta"))
    factor, term = _dot(form, x, y)
    product = factor.times(alpha), term
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return product
    factor, bias = form.of(node.inputs[2])
    return form.terms.sum([product, (factor.times(beta), bias)])


@_rule("Softmax", "LogSoftmax")
def _softmax(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    axis = form.axis(value, attribute(node, "axis", 1 if form.opset < 13 else -1))
    if axis is None or (form.opset < 13 and axis != -1):
        return None
    x = form.of(node.inputs[0])
    return (
        form.terms.softmax(x, axis)
        if node.op_type == "Softmax"
        else (ONE, form.terms.call("LogSoftmax", [x], axis=axis))
    )


@_rule("ReduceLogSumExp", "ReduceMax")
def _largest(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    axes = _axes(form, node)
    if axes is None:
        return None
    return _kept(form, node, value, (ONE, form.terms.call(node.op_type, [form.of(node.inputs[0])], axes=axes)), axes)


@_rule("Concat")
def _concat(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    axis = form.axis(value, attribute(node, "axis"))
    found = [form.of(item) for item in node.inputs]
    if axis is None or len(found) == 1:
        return None if axis is None else found[0]
    factor, *others = {own for own, _ in found}
    parts = [term for _, term in found]
    if not others and all(term.op == "Slice" and term.attributes["axis"] == axis for term in parts):
        bounds = [[int(bound.number) for bound, _ in term.args[1:]] for term in parts]
        first, whole = bounds[0][0], {term.args[0][1] for term in parts}
        is_whole = len(whole) == 1 and not first and all(a[1] == b[0] for a, b in itertools.pairwise(bounds))
        source = whole.pop()
        if is_whole and any(form.shape(name) == form.shape(value) for name, _ in source.names):
            return factor, source
    return _joined(form, found, axis)


def _joined(form: NormalForm, found: Sequence[Scaled], axis: int) -> Scaled:
    """Return a concatenation, without a factor that all parts have."""
    factor, *others = {own for own, _ in found}
    if others:
        return ONE, form.terms.call("Concat", found, axis=axis)
    return factor, form.terms.call("Concat", [(ONE, term) for _, term in found], axis=axis)


@_rule("Shape")
def _shape(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    """Return the size of one axis."""
    dims = (form.shape(node.inputs[0]) or ())[attribute(node, "start", 0) : attribute(node, "end")]
    return _size(form, dims[0]) if len(dims) == 1 else None


@_rule("Gather")
def _gather(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    """Return consecutive elements as a slice, and one of a shape as a size."""
    source, index = node.inputs[0], form.constant(node.inputs[1])
    shaped = None if source is None else source.producer()
    if shaped is not None and shaped.op_type == "Shape" and not shaped.attributes and index is not None:
        dims = form.shape(shaped.inputs[0])
        return _size(form, dims[int(index.item())]) if dims and index.size == 1 else None
    indices, shape = form.constant(node.inputs[1]), form.shape(node.inputs[0])
    axis, (factor, term) = attribute(node, "axis", 0), form.of(node.inputs[0])
    if indices is None or shape is None:
        return None
    if indices.ndim == 0 and axis in (-2, len(shape) - 2) and term.op == "Reshape":
        before, (count, size) = term.attributes["before"], shape[-2:]  # of the last axis, made parts of equal size
        if isinstance(count, int) and isinstance(size, int) and same_shape(before or (), (*shape[:-2], count * size)):
            start = int(indices) % count * size
            return _sliced(form, (factor, term.args[0][1]), before, -1, start, start + size)
    if indices.ndim != 1 or not len(indices):
        return None
    start = int(indices[0])
    if start < 0 or not np.array_equal(indices, np.arange(start, start + len(indices))):
        return None
    return _sliced(form, form.of(node.inputs[0]), shape, axis, start, start + len(indices))


@_rule("Attention")
def _attention(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    """Return attention to keys and values with four axes as products."""
    inputs = [*node.inputs, None, None, None, None][:7]
    shapes = [form.shape(item) or () for item in inputs[:3]]
    is_plain = not any(attribute(node, name, 0) for name in ("is_causal", "qk_matmul_output_mode", "softcap"))
    heads = {shape[1] for shape in shapes if len(shape) == 4}
    if value.index() or [len(shape) for shape in shapes] != [4, 4, 4] or any(inputs[4:]) or not is_plain:
        return None
    scale, size = attribute(node, "scale"), shapes[0][-1]
    if len(heads) != 1 or not isinstance(scale or size, int | float):
        return None
    factor, _ = form.number(scale) if scale else (Factor(1 / math.sqrt(float(size or 1))), None)
    q, k, v = map(form.of, inputs[:3])
    scores = _dot(form, q, form.terms.transposed(k, (0, 1, 3, 2)))
    scores = scores[0].times(factor), scores[1]
    if inputs[3] is not None:
        mask = form.of(inputs[3])
        chosen = mask if form.is_float(inputs[3]) else _masked(form, mask)
        scores = form.terms.sum([scores, chosen])
    return _dot(form, form.terms.softmax(scores, -1), v)


@_rule("Where")
def _where(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    """Return values that a mask replaces by minus infinity as their sum with a mask of numbers."""
    mask, x, y = map(form.of, node.inputs)
    if mask[1].op == "Not":
        mask, x, y = mask[1].args[0], y, x
    if y == (Factor(-math.inf), form.terms.unit) and form.is_float(value):
        return form.terms.sum([x, _masked(form, mask)])
    return ONE, form.terms.call("Where", [mask, x, y])


def _masked(form: NormalForm, mask: Scaled) -> Scaled:
    """Return 0 where a mask is true, and minus infinity elsewhere."""
    high, low = ((Factor(number), form.terms.unit) for number in (0.0, -math.inf))
    return ONE, form.terms.call("Where", [mask, high, low])


@_rule("RotaryEmbedding")
def _rotary(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    """Return the rotation of whole rows by the same angles in all heads and batches as products."""
    x, cos, sin = map(form.of, node.inputs[:3])
    shape, angles = form.shape(node.inputs[0]) or (), form.shape(node.inputs[1]) or ()
    is_whole = not any(attribute(node, name, 0) for name in ("interleaved", "rotary_embedding_dim"))
    if len(node.inputs) > 3 or len(shape) != 4 or len(angles) != 3 or angles[0] != 1 or not is_whole:
        return None
    size = shape[-1]
    if not isinstance(size, int):
        return None
    first, second = (_sliced(form, x, shape, 3, start, start + size // 2) for start in (0, size // 2))
    a = form.terms.sum([form.product((1, first), (1, cos)), _negative(form.product((1, second), (1, sin)))])
    b = form.terms.sum([form.product((1, second), (1, cos)), form.product((1, first), (1, sin))])
    return _joined(form, [a, b], -1)


@_rule("Slice")
def _slice(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    if len(node.inputs) < 3:
        return None
    starts, ends, axes, steps = (
        form.constant(node.inputs[i]) if i < len(node.inputs) and node.inputs[i] is not None else None
        for i in range(1, 5)
    )
    shape = form.shape(node.inputs[0])
    given = [item is not None for item in node.inputs[3:5]]
    if starts is None or ends is None or shape is None or (axes is None) is any(given[:1]):
        return None
    found = form.of(node.inputs[0])
    counted = range(len(starts)) if axes is None else axes.tolist()
    for position, axis in enumerate(counted):
        if (given[1:] == [True] and steps is None) or (steps is not None and steps[position] != 1):
            return None
        found = _sliced(form, found, shape, axis, int(starts[position]), int(ends[position]))
    return found


@_rule("Split")
def _split(form: NormalForm, node: onnx_ir.Node, value: onnx_ir.Value) -> Scaled | None:
    shape, axis = form.shape(node.inputs[0]), attribute(node, "axis", 0)
    if shape is None:
        return None
    size, count, sizes = shape[axis], len(node.outputs), attribute(node, "split")
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        given = form.constant(node.inputs[1])
        sizes = None if given is None else given.tolist()
    elif sizes is None and isinstance(size, int):
        each = -(-size // count)
        sizes = [each] * (count - 1) + [size - each * (count - 1)]
    if sizes is None:
        return None
    start = sum(sizes[: value.index()])
    return _sliced(form, form.of(node.inputs[0]), shape, axis, start, start + sizes[value.index() or 0])


def _sliced(form: NormalForm, x: Scaled, shape: Sequence[Any], axis: int, start: int, end: int) -> Scaled:
    size = shape[axis]
    if isinstance(size, int):
        start, end, _ = slice(start, end).indices(size)
    elif end >= 2**31 - 1:
        end = 2**63 - 1
    if (start, end) in ((0, size), (0, 2**63 - 1)):
        return x
    axis -= len(shape) if axis >= 0 else 0
    bounds = [(Factor(float(item)), form.terms.unit) for item in (start, end)]
    return x[0], form.terms.call("Slice", [(ONE, x[1]), *bounds], axis=axis)
