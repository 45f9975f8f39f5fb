"""Planted places compute what they are said to, changed ones run, and the judge tells the two apart."""

import random

import numpy as np
import onnx
import onnxruntime
import pytest
from models_differ import differs, float64_model
from planted_places import COMPUTATIONS, KINDS, UNSTEADY, near_miss, planted
from small_graphs import FLOAT16, FLOAT32, FLOAT64
from spellings import Speller, spelled_place

pytestmark = pytest.mark.stress

COUNT = 30
ROUNDING = {FLOAT16: 3e-2, FLOAT32: 1e-4, FLOAT64: 1e-10}


@pytest.mark.parametrize("first", range(0, 300, COUNT))
def test_planted_places_compute_what_they_are_said_to(first: int):
    for seed in range(first, first + COUNT):
        case = planted(seed)
        onnx.checker.check_model(case.model, full_check=True)
        found = values_of(case.model, {name for place in case.places for name in (*place.inputs, place.output)}, seed)
        for place in case.places:
            assert_computes(
                place.computation, [found[name] for name in place.inputs], place.attributes, found[place.output]
            )


@pytest.mark.parametrize("first", range(0, 300, COUNT))
def test_near_misses_run(first: int):
    for seed in range(first, first + COUNT):
        case = near_miss(seed)
        onnx.checker.check_model(case.model, full_check=True)
        values_of(case.model, set(), seed)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_near_miss_is_told_apart(kind: str):
    cases = [case for case in (near_miss(seed, kind) for seed in range(1000, 1150)) if case.kind == kind]
    told = [differs(*with_equal_ends(planted(case.seed).model, case.model), case.seed) for case in cases]
    assert any(told) == (kind != "shared")


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_spellings_of_small_numbers(name: str):
    """Where an epsilon counts as much as the numbers themselves."""
    computation = COMPUTATIONS[name]
    for seed in range(150):
        rng = random.Random(seed)
        dtype = FLOAT64 if FLOAT64 in computation.dtypes and rng.random() < 0.5 else FLOAT32
        graph = Speller(rng.randint(13, 23), rng, dtype)
        shape = (2, 1, 4, 4)[-rng.randint(2, 4) :]
        shapes = {"w": shape[-1:], "b": shape[-1:], "m": shape[-2:]}
        inputs = [graph.input(shapes.get(key, shape), dtype) for key in computation.inputs]
        attributes = {key: {"eps": 1e-6, "beta": 1.7, "scale": 0.3}[key] for key in computation.attributes}
        graph.place, graph.passes = 0, rng.choice([0, 0.2])
        graph.outputs = [spelled_place(graph, name, inputs, attributes).name]
        numbers = np.random.default_rng(seed)
        arrays = [(numbers.standard_normal(value.shape) * 1e-3).astype(dtype) for value in inputs]
        model = graph.model()
        feed = {value.name: array for value, array in zip(inputs, arrays, strict=True)}
        (found,) = session(model).run(None, feed)
        assert_computes(name, arrays, attributes, found)


def test_the_judge_takes_a_model_for_itself():
    for seed in range(200):
        model = planted(seed).model
        assert differs(model, model, seed) is None


def test_the_judge_takes_other_spellings_for_the_same():
    for seed in range(400):
        case, other = planted(seed), planted(seed, spelling=1)
        spelled = {label for place in (*case.places, *other.places) for label in place.spelling}
        assert spelled & UNSTEADY or differs(case.model, other.model, seed) is None


def test_float64_models_are_precise():
    for seed in range(2000, 2060):
        case = planted(seed)
        names = {name for place in case.places for name in (*place.inputs, place.output)}
        try:
            found = values_of(float64_model(case.model), names, seed)
        except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
            continue  # no kernel for float64
        is_half = case.model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
        for place in case.places:
            values = [found[name] for name in place.inputs]
            # Constants are still what the type of the model made of them.
            rounding = 1e-2 if is_half else 1e-5
            assert_computes(place.computation, values, place.attributes, found[place.output], rounding)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # some fusions raise
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def values_of(model: onnx.ModelProto, names: set[str], seed: int) -> dict[str, np.ndarray]:
    """Return these values of a model on normal inputs, and its outputs."""
    numbers = np.random.default_rng(seed)
    sizes: dict[str, int] = {}
    found: dict[str, np.ndarray] = {}
    for item in model.graph.input:
        tensor = item.type.tensor_type
        shape = [
            sizes.setdefault(dim.dim_param, int(numbers.integers(1, 6))) if dim.dim_param else dim.dim_value
            for dim in tensor.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        found[item.name] = numbers.standard_normal(shape).astype(dtype)
    feed = dict(found)
    found |= {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    more = onnx.ModelProto()
    more.CopyFrom(model)
    there = {item.name for item in model.graph.output}
    kind = model.graph.input[0].type.tensor_type.elem_type
    for name in sorted(names - there - set(found)):
        more.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
    outputs = [item.name for item in more.graph.output]
    return found | dict(zip(outputs, session(more).run(None, feed), strict=True))


def assert_computes(
    name: str,
    values: list[np.ndarray],
    attributes: dict[str, float],
    found: np.ndarray,
    rounding: float | None = None,
) -> None:
    with np.errstate(all="ignore"):
        wanted = COMPUTATIONS[name].reference(*(value.astype(np.float64) for value in values), **attributes)
    assert found.shape == wanted.shape
    assert found.dtype == values[0].dtype
    allowed = rounding or ROUNDING[found.dtype]
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
    np.testing.assert_allclose(found, wanted, allowed, allowed * largest, err_msg=name)


def with_equal_ends(model: onnx.ModelProto, other: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return the model, and the other with no more outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(other)
    del copy.graph.output[len(model.graph.output) :]
    return model, copy
