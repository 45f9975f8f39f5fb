"""The arrays that a kernel gets: read-only, valid during its call, and copied if they outlive it."""

import contextlib
import gc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops._core.runtime.native import kernel_node
from pyops._core.runtime.native.borrowing import extra_references
from pyops.errors import BorrowedArrayWarning
from tests.helpers.models import chain

F32 = NDArray[np.float32]
COUNT = 1000
X = np.arange(COUNT, dtype=np.float32)

keep_warns = pytest.mark.filterwarnings("ignore::pyops.errors.BorrowedArrayWarning")


class Box:
    kept: Any = None


def session_with(kernel: Callable[[Any], Any]) -> pyops.InferenceSession:
    """A session whose op gets memory of ONNX Runtime's own, which it uses again in each run."""

    @onnx_op("handed::Op")
    def op(x: F32) -> F32:
        return kernel(x)

    return pyops.InferenceSession(chain("Neg", "handed::Op", "Neg"))


def test_inputs_are_read_only_and_cannot_be_made_writeable() -> None:
    def kernel(x: Any) -> Any:
        assert not x.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            x.flags.writeable = True
        return x + 0

    np.testing.assert_array_equal(session_with(kernel).run(None, {"x": X})[0], X)


def test_strings_empty_and_scalar_inputs_are_read_only() -> None:
    flags = []

    @onnx_op("handed::Strings")
    def strings(x: NDArray[np.str_]) -> NDArray[np.str_]:
        flags.append(x.flags.writeable)
        return x

    session = pyops.InferenceSession(chain("handed::Strings", dtype=np.object_))
    for x in (np.array(["a"], object), np.empty(0, object), np.array("b", object).reshape(())):
        session.run(None, {"x": x})

    numbers = session_with(lambda x: flags.append(x.flags.writeable) or x)
    for size in ((0,), (), (1,)):
        numbers.run(None, {"x": np.ones(size, np.float32)})
    assert flags == [False] * 6


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
def test_an_array_of_one_call_is_not_that_of_the_next() -> None:
    def kernel(x: Any) -> Any:
        assert x.shape == (COUNT,)
        x.shape = (10, COUNT // 10)
        return x.reshape(-1)

    session = session_with(kernel)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X)


# How a kernel keeps its input, or a part of it, and how it is read back later.
KEEPERS: dict[str, tuple[Callable[[Box, Any], None], Callable[[Box], Any]]] = {
    "itself": (lambda box, x: setattr(box, "kept", x), lambda box: box.kept[1:]),
    "a-view": (lambda box, x: setattr(box, "kept", x[1:]), lambda box: box.kept),
    "views-of-views": (lambda box, x: setattr(box, "kept", x[::-1][::-1].reshape(1, -1)[:, 1:]), lambda b: b.kept[0]),
    "in-a-list": (lambda box, x: setattr(box, "kept", [[x[1:]]]), lambda box: box.kept[0][0]),
    "in-a-tuple-in-a-dict": (lambda box, x: setattr(box, "kept", {"k": (x[1:],)}), lambda box: box.kept["k"][0]),
    "in-a-closure": (lambda box, x: setattr(box, "kept", lambda part=x[1:]: part), lambda box: box.kept()),
    "in-a-generator": (lambda box, x: setattr(box, "kept", iter([x[1:]])), lambda box: next(box.kept)),
}


@pytest.mark.parametrize(("keep", "read"), KEEPERS.values(), ids=KEEPERS.keys())
def test_a_kept_array_is_reported_once_and_can_be_read(keep: Any, read: Any) -> None:
    box = Box()

    def kernel(x: Any) -> Any:
        keep(box, x)
        return x + 0

    session = session_with(kernel)
    with pytest.warns(BorrowedArrayWarning, match=r"handed::Op kept .*\.copy\(\).*test_borrowed_arrays\.py:\d+"):
        session.run(None, {"x": X})
    assert read(box).shape == (COUNT - 1,)
    for factor in (2, 3):
        np.testing.assert_array_equal(session.run(None, {"x": X * factor})[0], X * factor)
        np.testing.assert_array_equal(read(box), -X[1:] * factor)  # a copy, which nobody else writes to


@keep_warns
@pytest.mark.parametrize(("keep", "read"), KEEPERS.values(), ids=KEEPERS.keys())
def test_an_array_kept_by_a_kernel_that_raises_can_be_read(keep: Any, read: Any) -> None:
    box = Box()

    def kernel(x: Any) -> Any:
        keep(box, x)
        raise ValueError("no")

    session = session_with(kernel)
    with pytest.raises(ValueError, match="no"):
        session.run(None, {"x": X})
    del session
    gc.collect()
    assert read(box).shape == (COUNT - 1,)


def test_the_arrays_in_a_traceback_s_frames_and_slices_of_them_hold_their_values() -> None:
    def kernel(x: Any) -> Any:
        part = x[1:]
        if x[1] == -1:
            raise ValueError(part.size)
        return x + 0

    session, others = session_with(kernel), {"x": np.full(COUNT, 77, np.float32)}
    # From the second run on ONNX Runtime has one block for all, at the same place.
    session.run(None, others)
    session.run(None, others)
    with pytest.raises(ValueError, match="999") as caught:
        session.run(None, {"x": X})
    step = caught.tb
    while step.tb_next:
        step = step.tb_next
    session.run(None, others)
    np.testing.assert_array_equal(step.tb_frame.f_locals["x"], -X)
    np.testing.assert_array_equal(step.tb_frame.f_locals["part"], -X[1:])


def test_a_kernel_that_catches_what_another_session_raises_keeps_nothing() -> None:
    @onnx_op("handed::Refuse")
    def refuse(x: F32) -> F32:
        raise LookupError("inner")

    def kernel(x: Any) -> Any:
        part = x[1:]
        with contextlib.suppress(LookupError):
            inner.run(None, {"x": part})
        return x + 0

    inner = pyops.InferenceSession(chain("handed::Refuse"))
    session = session_with(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X)


def test_an_exception_in_a_module_does_not_hide_what_a_kernel_keeps_there() -> None:
    def refuse(x: Any) -> Any:
        raise LookupError("no")

    module = {"run": lambda: session_with(refuse).run(None, {"x": X})}
    with pytest.raises(LookupError, match="no"):
        exec("run()", module)
    exec("def kernel(x):\n    global kept\n    kept = x\n    return x + 0", module)
    with pytest.warns(BorrowedArrayWarning, match="handed::Op kept"):
        session_with(module["kernel"]).run(None, {"x": X})


def test_kernels_get_arrays_on_memory_that_onnxruntime_owns() -> None:
    have_memory = []
    session_with(lambda x: have_memory.append(x.flags.owndata) or x + 0).run(None, {"x": X})
    assert have_memory == [False]


@pytest.mark.parametrize("kind", [list, tuple])
def test_references_are_counted_alike_in_every_version_of_python(kind: Any) -> None:
    def references(objects: Any) -> list[int]:  # of which Python 3.14 does not count the argument
        return extra_references(objects)

    kept = [object() for _ in range(3)]
    lists = [[], kept[1:], kept[2:]]
    counted, alone = references(kind(kept)), references(kind([object()]))
    assert (counted, alone, len(lists)) == ([1, 2, 3], [0], 3)


def test_where_references_cannot_be_counted_kernels_get_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_node, "counts_references", lambda: False)
    kept = []

    @onnx_op("handed::Keep")
    def keep(x: F32) -> F32:
        kept.append(x)
        return x + 0

    session = pyops.InferenceSession(chain("Neg", "handed::Keep", "Neg"))
    for factor in range(1, 20):
        np.testing.assert_array_equal(session.run(None, {"x": X * factor})[0], X * factor)
    assert not any(isinstance(array.base, memoryview) for array in kept)
    np.testing.assert_array_equal(kept, [-X * factor for factor in range(1, 20)])


def test_each_node_reports_a_kept_array_once() -> None:
    kept = []

    @onnx_op("handed::Keep")
    def keep(x: F32) -> F32:
        kept.append(x)
        return x + 0

    session = pyops.InferenceSession(chain("handed::Keep", "handed::Keep"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            session.run(None, {"x": X})
    assert [warning.category for warning in caught] == [BorrowedArrayWarning] * 2


@pytest.mark.parametrize(
    "result", [lambda x: x, lambda x: x[:], lambda x: x.reshape(2, -1), lambda x: x.T, lambda x: x + 0]
)
def test_returning_the_input_or_a_view_of_it_is_not_keeping_it(result: Callable[[Any], Any]) -> None:
    session = session_with(result)
    for factor in (1, 2):
        expected = result(X * factor)
        np.testing.assert_array_equal(session.run(None, {"x": X * factor})[0], expected)


def test_a_kept_result_is_the_kernel_s_own_business() -> None:
    results = []

    def kernel(x: Any) -> Any:
        results.append(x + 0)
        return results[-1]

    session = session_with(kernel)
    given = session.run(None, {"x": X})[0]
    results[0][:] = 5
    np.testing.assert_array_equal(given, X)
