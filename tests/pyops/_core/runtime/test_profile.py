"""`pyops.profile`: the cost of the nodes of a session, and no overhead without it."""

from __future__ import annotations

import threading
from html.parser import HTMLParser
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from pyops.errors import PyopsError
from tests.helpers.models import chain

F32 = NDArray[np.float32]
X = np.arange(5, dtype=np.float32)


def declare_plus(amount: int) -> None:
    @onnx_op("seen::Plus")
    def plus(x: F32) -> F32:
        return x + np.float32(amount)


@pytest.fixture(autouse=True)
def ops() -> None:
    declare_plus(1)

    @onnx_op("seen::Fails")
    def fails(x: F32) -> F32:
        raise ValueError("no")

    @onnx_op("seen::Interrupted")
    def interrupted(x: F32) -> F32:
        raise KeyboardInterrupt("no")


def session(*nodes: str, engine: str = "native", options: Any = None) -> Any:
    return pyops.InferenceSession(chain(*nodes), options, engine=engine)


@pytest.mark.parametrize("engine", ["native", "extensions"])
def test_calls_and_times_of_each_node(engine: str) -> None:
    made = session("seen::Plus", "Neg", "seen::Plus", engine=engine)
    with pyops.profile(made) as profile:
        for _ in range(3):
            made.run(None, {"x": X})
    first, second = profile.nodes
    assert (first.name, second.name) == ("node0", "node2")
    for node in profile.nodes:
        assert (node.op.name, node.calls) == ("Plus", 3)
        assert node.kernel_seconds > 0
        assert node.overhead_seconds > 0


def test_only_what_runs_within_it_counts() -> None:
    made, other = session("seen::Plus"), session("seen::Plus")
    made.run(None, {"x": X})
    with pyops.profile(made) as profile:
        made.run(None, {"x": X})
        other.run(None, {"x": X})
    (result,) = made.run(None, {"x": X})
    assert result.tolist() == (X + 1).tolist()
    assert [node.calls for node in profile.nodes] == [1]


def test_a_session_can_be_profiled_again_and_not_twice_at_once() -> None:
    made = session("seen::Plus")
    for _ in range(2):
        with pyops.profile(made) as profile:
            made.run(None, {"x": X})
            with pytest.raises(PyopsError, match="is already being profiled"), pyops.profile(made):
                pass
        assert [node.calls for node in profile.nodes] == [1]


@pytest.mark.parametrize("engine", ["native", "extensions"])
@pytest.mark.parametrize(("name", "kind"), [("Fails", ValueError), ("Interrupted", KeyboardInterrupt)])
def test_an_exception_comes_out_as_ever_and_the_call_counts(engine: str, name: str, kind: type[BaseException]) -> None:
    made = session(f"seen::{name}", engine=engine)
    with pyops.profile(made) as profile, pytest.raises(kind, match="no") as caught:
        made.run(None, {"x": X})
    assert any("node0" in note for note in caught.value.__notes__)
    assert profile.nodes[0].calls == 1


def test_a_kernel_redeclared_within_it_is_followed() -> None:
    made = session("seen::Plus")
    with pyops.profile(made) as profile:
        made.run(None, {"x": X})
        declare_plus(2)
        (result,) = made.run(None, {"x": X})
    assert result.tolist() == (X + 2).tolist()
    assert profile.nodes[0].calls == 2


def test_a_kernel_that_keeps_its_input_is_told_and_gets_copies() -> None:
    kept = []

    @onnx_op("seen::Keeps")
    def keeps(x: F32) -> F32:
        kept.append(x)
        return x + x

    made = session("seen::Keeps")
    with pyops.profile(made):
        with pytest.warns(pyops.errors.BorrowedArrayWarning):
            made.run(None, {"x": X})
        made.run(None, {"x": X})
    assert [array.tolist() for array in kept] == [X.tolist()] * 2


def test_a_kernel_that_is_known_to_keep_its_input_gets_copies_and_is_told_once() -> None:
    kept = []

    @onnx_op("seen::Keeps")
    def keeps(x: F32) -> F32:
        kept.append(x)
        return x + x

    made = session("seen::Keeps")
    with pytest.warns(pyops.errors.BorrowedArrayWarning):
        made.run(None, {"x": X})
    with pyops.profile(made):
        made.run(None, {"x": X})
    assert [array.tolist() for array in kept] == [X.tolist()] * 2


def test_kernels_that_run_sessions_and_several_threads_are_told_apart() -> None:
    inner = session("seen::Plus")

    @onnx_op("seen::Nests")
    def nests(x: F32) -> F32:
        return inner.run(None, {"x": x.copy()})[0]

    outer = session("seen::Nests")
    with pyops.profile(outer) as of_outer, pyops.profile(inner) as of_inner:
        threads = [threading.Thread(target=lambda: [outer.run(None, {"x": X}) for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert of_outer.nodes[0].calls == of_inner.nodes[0].calls == 80
    assert of_outer.nodes[0].kernel_seconds > of_inner.nodes[0].kernel_seconds


def test_compiled_kernels_run_as_machine_code_meanwhile_and_are_counted_apart() -> None:
    pytest.importorskip("numba")

    @onnx_op("seen::Compiled", compile=True)
    def compiled(x: F32) -> F32:
        return x + np.float32(1)

    made = session("seen::Compiled", "seen::Plus", "seen::Compiled")
    with pyops.profile(made) as profile:
        (result,) = made.run(None, {"x": X})
    assert result.tolist() == (X + 3).tolist()
    assert [(node.name, node.calls) for node in profile.nodes] == [("node1", 1)]
    assert repr(profile).endswith("as machine code, which ONNX Runtime's own profiler times: 2")
    with pyops.profile(session("seen::Compiled")) as profile:
        pass
    assert repr(profile).splitlines()[0] == "no node of the session is computed by a declared op in Python"


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        self.found.append(data)


def test_it_is_a_table_in_a_terminal_and_in_a_notebook() -> None:
    made = session("seen::Plus")
    with pyops.profile(made) as profile:
        made.run(None, {"x": X})
    header, row = repr(profile).splitlines()
    assert header.split()[:4] == ["node", "op", "calls", "kernel"]
    assert row.split()[:3] == ["node0", "seen::Plus", "1"]
    cells = Cells()
    cells.feed(profile._repr_html_())
    assert "seen::Plus" in cells.found


def test_a_session_without_ops_says_so() -> None:
    with pyops.profile(session("Neg")) as profile:
        pass
    assert repr(profile) == "no node of the session is computed by a declared op in Python"
    assert "no node" in profile._repr_html_()


def test_a_session_that_is_not_ours_is_refused() -> None:
    made = onnxruntime.InferenceSession(chain("Neg").SerializeToString())
    with (
        pytest.raises(PyopsError, match=r"expected a pyops.InferenceSession.*pyops.patch_onnxruntime"),
        pyops.profile(made),
    ):
        pass
