"""Whether two models compute the same, by numbers.

``differs`` runs both in plain ONNX Runtime, and the first in float64 besides, on inputs of its own. What the second
computes may be as far from float64 as ten times what the first is, and as ten units in the last place of the largest
number. How far the first is also counts the rounding of its inputs: of a function that makes much of small differences,
nobody computes more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays], list[np.ndarray]]

DOUBLE = onnx.TensorProto.DOUBLE
# From the coarsest to the finest.
FLOATS = (onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT, DOUBLE)
UNITS_OF_FLOAT64 = 1e4
SIZES = (1, 2, 3, 4, 5, 7)


def differs(before: Any, after: Any, seed: int) -> str | None:
    """Return how a model differs from the one before, or None.

    Parameters
    ----------
    before, after : onnx.ModelProto, path, or what has ``save(path)``
        Models of the same inputs and outputs. The second may have functions.
    seed : int
        Decides the three inputs: normal ones, small ones and large ones, with zeros.
    """
    first, second = _loaded(before), _loaded(after)
    for there, here in ((first.graph.input, second.graph.input), (first.graph.output, second.graph.output)):
        if [item.name for item in there] != [item.name for item in here]:
            return "other names of inputs or outputs"
    run, precise = _session(first), _in_float64(first)
    try:
        run_second = _session(second)
    except Exception as error:
        return f"does not load: {str(error)[:300]}"
    numbers = np.random.default_rng(seed)

    def problem(kind: str) -> str | None:
        feed, wanted = _drawn(first, kind, numbers, run)
        try:
            found = run_second(feed)
        except Exception as error:
            return f"on {kind} inputs, raises: {str(error)[:300]}"
        largest = max((np.abs(array).max(initial=0) for array in feed.values() if _is_float(array)), default=0)
        ideal = precise(_as_float64(feed, first))
        nudged = precise(_as_float64(_nudged(feed, numbers), first))
        for name, *arrays in zip(_outputs(first), found, wanted, ideal, nudged, strict=True):
            difference = _difference(*arrays, largest=float(largest), overflows=kind == "large")
            if difference:
                shapes = {key: list(array.shape) for key, array in feed.items()}
                return f"{name} on {kind} inputs {shapes}: {difference}"
        return None

    # A softmax of large numbers is on an edge now and then, where any rounding decides, but not twice.
    return problem("normal") or problem("small") or (problem("large") and problem("large"))


def _difference(
    found: np.ndarray,
    wanted: np.ndarray,
    ideal: np.ndarray,
    nudged: np.ndarray,
    *,
    largest: float,
    overflows: bool,
) -> str | None:
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype}{list(found.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if not _is_float(wanted):
        return None if np.array_equal(found, wanted) else f"{found.tolist()} instead of {wanted.tolist()}"[:300]
    wanted_type, epsilon = wanted.dtype, float(ml_dtypes.finfo(wanted.dtype).eps)
    found, wanted, ideal, nudged = (array.astype(np.float64) for array in (found, wanted, ideal, nudged))
    finite, exact = np.isfinite(wanted), np.isfinite(ideal)
    if not overflows:  # where float64 has no number either, large inputs are past what it can tell
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        if np.any(~finite & ~exact & ~same):
            return f"{found[~finite & ~exact & ~same][0]} where there was none"
    judged = finite & exact
    if not judged.any():
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(np.where(judged, found - ideal, 0))
        rounding = np.abs(wanted - ideal)[judged].max()
        carried = np.abs(nudged - ideal)[judged]
    carried = carried[np.isfinite(carried)].max(initial=0)
    largest = max(largest, np.abs(ideal)[judged].max())
    if wanted_type == np.float64:  # nothing finer says how it rounds
        allowed = UNITS_OF_FLOAT64 * epsilon * max(largest, 1) + 10 * carried
    else:
        allowed = 10 * (max(rounding, carried) + epsilon * largest)
    if np.all(apart <= allowed):
        return None
    worst = np.unravel_index(np.argmax(np.where(np.isnan(apart), np.inf, apart)), apart.shape)
    return f"{found[worst]} instead of {ideal[worst]} (allowed: {allowed:.3})"


# Inputs.


def _drawn(
    model: onnx.ModelProto, kind: str, numbers: np.random.Generator, run: Run
) -> tuple[Arrays, list[np.ndarray]]:
    """Return inputs with which the model runs, and its outputs."""
    for _ in range(10):
        sizes: dict[str, int] = {}
        feed = {item.name: _array(item, kind, numbers, sizes) for item in _inputs(model)}
        try:
            return feed, run(feed)
        except Exception as error:
            problem = error
    raise ValueError(f"the model before runs with no sizes: {problem}")


def _array(item: onnx.ValueInfoProto, kind: str, numbers: np.random.Generator, sizes: dict[str, int]) -> np.ndarray:
    tensor = item.type.tensor_type
    possible = SIZES[1:] if kind == "normal" else SIZES  # much is the same function of a single number
    shape = []
    for at, dim in enumerate(tensor.shape.dim):
        name = dim.dim_param or f"{item.name} {at}"
        given = dim.dim_value if dim.HasField("dim_value") else None
        shape.append(sizes.setdefault(name, int(numbers.choice(possible))) if given is None else given)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if tensor.elem_type not in FLOATS:
        return numbers.integers(0, 3, shape).astype(dtype)
    scale = {"normal": 1, "small": 1e-3, "large": 30 if dtype.itemsize == 2 else 1e3}[kind]
    array = numbers.standard_normal(shape) * scale
    sign = numbers.integers(4)
    if sign < 2:
        array = np.abs(array) * (1 if sign else -1)
    array[numbers.random(shape) < 0.05] = 0
    if array.ndim > 1 and array.shape[-2] > 1 and numbers.random() < 0.3:
        array[..., 0, :] = 0
    return array.astype(dtype)


def _nudged(feed: Arrays, numbers: np.random.Generator) -> Arrays:
    """Return the inputs, each number half of the distance to the next one away, in float64."""
    return {
        name: array.astype(np.float64)
        * (1 + numbers.choice([-0.5, 0.5], array.shape) * float(ml_dtypes.finfo(array.dtype).eps))
        if _is_float(array)
        else array
        for name, array in feed.items()
    }


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


# Models.


def _loaded(model: Any) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, str | Path):
        return onnx.load(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        model.save(path)
        return onnx.load(path)


def _inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    held = {tensor.name for tensor in model.graph.initializer}
    return [item for item in model.graph.input if item.name not in held]


def _outputs(model: onnx.ModelProto) -> list[str]:
    return [item.name for item in model.graph.output]


def _session(model: onnx.ModelProto) -> Run:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def _in_float64(model: onnx.ModelProto) -> Run:
    precise = float64_model(model)
    try:
        return _session(precise)
    except Exception:  # ONNX Runtime has no kernel of an operator for float64
        evaluator = ReferenceEvaluator(precise)

    def run(feed: Arrays) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            return [np.asarray(array) for array in evaluator.run(None, feed)]

    return run


def _as_float64(feed: Arrays, model: onnx.ModelProto) -> Arrays:
    wide = _wide(model)
    types = {item.name: item.type.tensor_type.elem_type for item in _inputs(model)}
    return {name: array.astype(np.float64) if types[name] in wide else array for name, array in feed.items()}


def _wide(model: onnx.ModelProto) -> tuple[int, ...]:
    """Return the types that become float64: those of the inputs, and finer ones.

    Coarser types are meant: a model that goes through them computes another function.
    """
    used = [item.type.tensor_type.elem_type for item in _inputs(model)]
    used = [kind for kind in used if kind in FLOATS]
    return FLOATS[min(map(FLOATS.index, used), default=0) :]


def float64_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model computing in float64 what it computes in the type of its inputs."""
    wide = _wide(model)
    found = onnx.ModelProto()
    found.CopyFrom(model)
    for graph in _graphs(found):
        del graph.value_info[:]
        for item in (*graph.input, *graph.output):
            if item.type.tensor_type.elem_type in wide:
                item.type.tensor_type.elem_type = DOUBLE
        for tensor in graph.initializer:
            _widen(tensor, wide)
    for nodes in (*(graph.node for graph in _graphs(found)), *(function.node for function in found.functions)):
        for node in nodes:
            for attribute in node.attribute:
                _widen_attribute(attribute, wide)
    return found


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    waiting = [model.graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else attribute.graphs


def _widen_attribute(attribute: onnx.AttributeProto, wide: tuple[int, ...]) -> None:
    if attribute.name in ("to", "dtype") and attribute.i in wide:
        attribute.i = DOUBLE
    elif attribute.HasField("t"):
        _widen(attribute.t, wide)
    elif attribute.name in ("value_float", "value_floats") and onnx.TensorProto.FLOAT in wide:
        numbers = onnx.helper.get_attribute_value(attribute)
        tensor = onnx.numpy_helper.from_array(np.asarray(numbers, np.float64))
        attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def _widen(tensor: onnx.TensorProto, wide: tuple[int, ...]) -> None:
    if tensor.data_type in wide and tensor.data_type != DOUBLE:
        array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
