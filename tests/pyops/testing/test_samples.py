"""Samples, outputs that compare as one, and the strategies that come from signatures."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeVar

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._tolerances import first_difference
from pyops.errors import InputError
from pyops.testing import Outputs, Sample, assert_close, strategies
from tests.helpers.engines import ENGINES, make_session

T = TypeVar("T", np.float32, np.float64, np.int32, np.str_, ml_dtypes.bfloat16)
F32 = NDArray[np.float32]
X = np.array([1.0, 2.0, 4.0], np.float32)
NAN, INF = np.float32("nan"), np.float32("inf")


@onnx_op("sampled::Join", version=2)
def join(
    x: NDArray[T],
    y: NDArray[T] | None = None,
    *rest: F32,
    mode: Literal["a", "b"] = "a",
    flag: bool = False,
    table: np.ndarray | None = None,
) -> tuple[NDArray[T], NDArray[np.int64]]:
    return (x if y is None else y), np.array([x.size, len(rest), flag])


def test_a_sample_is_a_call_with_a_name_a_model_and_a_feed():
    sample = Sample(join, X, None, X[:1], X[1:], mode="b", flag=True, table=X)
    assert (
        sample.id
        == repr(sample)
        == ("Join(float32[3], None, float32[1], float32[2], mode='b', flag=True, table=float32[3])")
    )
    assert sample.with_id("short").id == "short"
    assert list(sample.feed) == ["x", "rest[0]", "rest[1]"]
    model = sample.model()
    assert [item.version for item in model.opset_import if item.domain == "sampled"] == [2]
    assert list(model.graph.node[0].input) == ["x", "", "rest[0]", "rest[1]"]
    assert list(model.graph.node[0].output) == [item.name for item in join.signature.outputs]
    for engine in ("native", "reference"):
        for dynamic in (False, True):
            assert make_session(sample.model(dynamic), engine).run(None, sample.feed) == sample.expected()


def test_a_model_names_its_values_as_the_op_does_and_each_of_them_once():
    class Names(NamedTuple):
        x: F32
        x_: F32

    @onnx_op("sampled::Names")
    def names(x: F32, *, output: int = 0) -> Names:
        return Names(x + 1, x + 2)

    sample = Sample(names, X)
    (node,) = sample.model().graph.node
    assert (list(node.input), list(node.output)) == (["x"], ["x_", "x__"])
    results = make_session(sample.model(), "native").run(None, {"x": X})
    assert results == sample.expected()


def test_inputs_may_be_named_and_outputs_given():
    sample = Sample(join, y=X + 1, x=X)
    assert sample.expected() == (X + 1, np.array([3, 0, 0]))
    given = sample.with_expected([2, 3, 5], [3, 0, 0])
    assert given.expected() == sample.expected()
    assert [array.dtype for array in given.expected()] == [np.float32, np.int64]
    assert given.with_id("x").returned is not None
    assert sample.returned is None


def test_a_model_runs_the_kernel_only_where_nothing_else_tells_the_types_of_its_outputs():
    calls = []

    @onnx_op("sampled::Counted")
    def counted(x: NDArray[T]) -> NDArray[T]:
        calls.append(1)
        return x

    @onnx_op("sampled::Free")
    def free(x: F32) -> tuple[F32, ...]:
        calls.append(2)
        return x, x

    types = [y.type.tensor_type.elem_type for y in Sample(counted, X.astype(np.float64)).model().graph.output]
    assert (types, calls) == ([11], [])
    for expected in ([2], [2], []):
        if not expected:
            free.register_shape_inference(lambda x: (x, x))
        types = [y.type.tensor_type.elem_type for y in Sample(free, X).model().graph.output]
        assert (types, calls) == ([1, 1], expected)
        calls.clear()


def test_a_list_may_come_from_an_iterator():
    @onnx_op("sampled::Weighted")
    def weighted(x: F32, *, weights: list[float]) -> F32:
        return x * np.float32(sum(weights))

    sample = Sample(weighted, X, weights=map(float, "12"))
    assert sample.id == "Weighted(float32[3], weights=[1.0, 2.0])"
    assert sample.expected() == sample.expected() == X * 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sample(join, [1.0]), r"input 'x' is list; pass an array"),
        (lambda: Sample(join, X, colour=1), "unknown attribute 'colour'"),
        (lambda: Sample(join), "got 0 inputs"),
        (
            lambda: Sample(join, X).with_expected((X, X)),
            r"got 1 expected outputs; .* has 2: write with_expected\(.*, .*\), or check\(\.\.\., expected=\(.*\)\)",
        ),
    ],
)
def test_what_is_no_call_is_refused(make: Any, message: str):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("actual", "expected", "problem"),
    [
        ([X], [X], None),
        ([X], [X + np.float32(1e-6)], None),
        ([np.array([NAN, INF, -INF])], [np.array([NAN, INF, -INF])], None),
        ([np.array(["a", "b"], object)], [np.array(["a", "b"], object)], None),
        ([X], [X, X], "there are 1 outputs; expected 2"),
        ([X], [X[:2]], "output 'y' is float32[3]; expected float32[2]"),
        ([X], [X.astype(np.int32)], "output 'y' is float32[3]; expected int32[3]"),
        ([X], [np.array([1, 2, 5], np.float32)], "differs in 1 of 3 elements, first at [2]: 4.0 where 5.0 is expected"),
        ([X[0]], [X[1]], "output 'y' (float32[]) differs: 1.0 where 2.0 is expected"),
        ([np.array([1, NAN])], [np.array([1, 1.0])], "first at [1]: nan where 1.0 is expected"),
        ([np.array([INF])], [np.array([-INF])], "first at [0]: inf where -inf is expected"),
        ([np.array(["a", "b"], object)], [np.array(["a", "c"], object)], "first at [1]: 'b' where 'c' is expected"),
        ([np.array([2**63], np.uint64)], [np.array([2**63 + 1], np.uint64)], "5808 where 9223372036854775809 is"),
        ([X.astype(ml_dtypes.bfloat16)], [(X + 1).astype(ml_dtypes.bfloat16)], "first at [0]: 1 where 2 is expected"),
        ([np.array([1j])], [np.array([2j])], "first at [0]: 1j where 2j is expected"),
        ([np.array([True])], [np.array([False])], "True where False is expected"),
    ],
)  # fmt: skip
def test_the_first_difference_is_told(actual: Any, expected: Any, problem: str | None):
    told = first_difference(actual, expected, ["y"])
    assert told is None if problem is None else problem in (told or "")
    assert (Outputs(expected) == actual) is (problem is None)
    assert (actual == Outputs(expected)) is (problem is None)
    assert (actual != Outputs(expected)) is (problem is not None)
    assert (tuple(actual) == Outputs(expected)) is (problem is None)


def test_tolerances_are_those_given():
    assert_close(X, X + 0.5, atol=0.5)
    assert_close([X], (X * np.float32(1.25),), rtol=0.25)
    with pytest.raises(AssertionError, match=r"the largest difference is 0.5\)"):
        assert_close(X, X + np.float32(0.5), rtol=0, atol=0.1)
    with pytest.raises(AssertionError, match=r"first at \[0\]: 1 where 2 is expected$"):
        assert_close(np.arange(1, 3), np.arange(2, 4))
    assert Outputs([X], atol=1) == [X + 1]


def test_a_numpy_scalar_is_an_array_without_dimensions():
    assert_close(-np.array(0.5), np.float64(-0.5))  # which NumPy makes of the array
    assert Outputs([np.array(0.5)]) == np.float64(0.5)
    with pytest.raises(AssertionError, match=r"0.5 where 1.0 is expected"):
        assert_close(np.float64(0.5), np.array(1.0))


def test_an_array_compares_with_outputs_as_one():
    assert (Outputs([X]) == X) is True
    assert (Outputs([X]) == X) is True
    assert Outputs([X]) != 3


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "extensions"])
def test_what_is_generated_is_a_call_of_the_op(engine: str):
    seen: set[Any] = set()

    @settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(strategies.samples(join))
    def hold(sample: Sample) -> None:
        seen.update((array.dtype.name, array.size == 0, array.ndim) for array in sample.inputs if array is not None)
        seen.add(("absent", len(sample.inputs) < 2 or sample.inputs[1] is None))
        seen.update(sample.attributes)
        assert make_session(sample.model(), engine).run(None, sample.feed) == sample.expected()

    hold()
    assert {("absent", True), ("absent", False), "mode", "flag", "table"} <= seen
    assert {"float32", "float64", "int32", "object", "bfloat16"} <= {item[0] for item in seen}
    assert {0, 1, 2, 3} <= {item[2] for item in seen if len(item) == 3}
    assert any(item[1] for item in seen if len(item) == 3)


def drawn(strategy: Any) -> list[Sample]:
    found: list[Sample] = []

    @settings(max_examples=80, deadline=None, derandomize=True, database=None)
    @given(strategy)
    def collect(sample: Sample) -> None:
        found.append(sample)

    collect()
    return found


@pytest.mark.parametrize("shapes", [(2, 3), st.just((2, 3)), {"x": (2, 3), "y": st.just((2, 3)), "rest": (2, 3)}])
def test_shapes_are_those_that_are_given(shapes: Any):
    samples = drawn(strategies.samples(join, shapes=shapes))
    assert {array.shape for sample in samples for array in sample.inputs if array is not None} == {(2, 3)}


def test_shapes_of_some_inputs_may_be_given_and_depend_on_each_other():
    samples = drawn(strategies.samples(join, shapes={"x": (5,)}))
    assert {sample.inputs[0].shape for sample in samples} == {(5,)}
    assert len({array.shape for sample in samples for array in sample.inputs[2:]}) > 1
    pairs = st.integers(1, 3).map(lambda n: {"x": (n, 2), "y": (2, n)})
    shapes = [
        [x.shape for x in sample.inputs[:2] if x is not None]
        for sample in drawn(strategies.samples(join, shapes=pairs))
    ]
    assert all(pair[0] == pair[1][::-1] for pair in shapes if len(pair) == 2)


def test_elements_are_those_that_are_given_as_the_type_of_the_input():
    samples = drawn(strategies.samples(join, shapes=(2, 3), elements={"x": st.integers(2, 4), "rest": st.floats(5, 6)}))
    seen = {x.dtype.name for x in (sample.inputs[0] for sample in samples)}
    assert {"float32", "int32", "object"} <= seen
    for sample in samples:
        x, rest = sample.inputs[0], sample.inputs[2:]
        assert set(x.flat) <= ({"2", "3", "4"} if x.dtype == object else {2, 3, 4})
        assert all(((array >= 5) & (array <= 6)).all() for array in rest)


def test_attributes_are_those_that_are_given():
    samples = drawn(strategies.samples(join, attributes={"mode": "b", "flag": st.just(True)}))
    assert {(sample.attributes["mode"], sample.attributes["flag"]) for sample in samples} == {("b", True)}


@pytest.mark.parametrize(
    ("steering", "message"),
    [
        ({"shapes": {"z": (2,)}}, "shapes names 'z', which is not an input of sampled::Join"),
        ({"elements": {"mode": st.just(1)}}, "elements names 'mode', which is not an input"),
        ({"attributes": {"colour": 1}}, "unknown attribute 'colour'"),
    ],
)
def test_names_that_an_op_does_not_have_are_refused(steering: Any, message: str):
    with pytest.raises(InputError, match=message):
        drawn(strategies.samples(join, **steering))


@pytest.mark.parametrize("name", pyops.testing.__all__)
def test_every_public_name_is_there(name: str):
    assert getattr(pyops.testing, name) is not None
