"""The pytest plug-in: a session fixture, ids of samples, and isolation.

pytest loads it wherever pyops is installed, before coverage starts and in projects that do not use pyops, so that it
must not import the rest of pyops up front.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ._runtime.session import InferenceSession

_ISOLATED = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Isolate a test from its first own fixture on; what fixtures of a wider scope declare stays."""
    if fixturedef.scope == "function":
        _isolate(request.node)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Isolate a test without fixtures of its own."""
    _isolate(item)


def _isolate(item: pytest.Item) -> None:
    """Undo the declarations of a test when it ends, if pyops has been imported."""
    if "pyops._ops.registry" not in sys.modules or _ISOLATED in item.stash:
        return
    from .testing import isolated_declarations

    block = ExitStack()
    block.enter_context(isolated_declarations())
    item.stash[_ISOLATED] = True
    block.callback(item.stash.__delitem__, _ISOLATED)  # another plug-in may run the test again
    item.addfinalizer(block.close)


@pytest.fixture
def pyops_session() -> Callable[..., InferenceSession]:
    """Return a function that creates a `pyops.InferenceSession` from a model or a `pyops.testing.Sample`.

    Its other arguments are those of `pyops.InferenceSession`. Without session options, the session has
    one thread, so that failures are reproducible.
    """

    def make(source: Any, sess_options: Any = None, **arguments: Any) -> InferenceSession:
        import onnxruntime

        from ._runtime.session import InferenceSession
        from .testing import Sample

        if sess_options is None:
            sess_options = onnxruntime.SessionOptions()
            sess_options.intra_op_num_threads = sess_options.inter_op_num_threads = 1
        model = source.model(dynamic=True) if isinstance(source, Sample) else source
        return InferenceSession(model, sess_options, **arguments)

    return make


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Return the id of a sample, so that tests are named for it."""
    testing = sys.modules.get("pyops.testing")
    return val.id if testing and isinstance(val, testing.Sample) else None


def pytest_assertrepr_compare(config: pytest.Config, op: str, left: object, right: object) -> list[str] | None:
    """Explain a failed comparison with expected outputs by the first difference."""
    testing = sys.modules.get("pyops.testing")
    if op != "==" or not testing:
        return None
    expected, actual = (right, left) if isinstance(right, testing.Outputs) else (left, right)
    if not isinstance(expected, testing.Outputs) or not hasattr(actual, "__len__"):
        return None
    return ["the outputs are those expected", str(expected.difference(actual))]
