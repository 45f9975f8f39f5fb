"""The pytest plug-in: a session fixture, ids of samples, isolation, and checks of every declared op.

pytest loads it wherever pyops is installed, before coverage starts and in projects that do not use pyops, so it must
not import the rest of pyops up front.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from . import InferenceSession
    from .testing import Sample

_ISOLATED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--pyops-check``."""
    parser.getgroup("pyops").addoption(
        "--pyops-check",
        action="store_true",
        help="also run pyops.testing.check on every op that is declared once tests are collected: on the samples that "
        "tests are parametrized with and of the strategies that are registered for ops, or else on generated inputs",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Isolate a test from its first function-scoped fixture on; what fixtures of a wider scope declare stays."""
    if fixturedef.scope == "function":
        _isolate(request.node)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Isolate a test that has no function-scoped fixtures."""
    _isolate(item)


def _isolate(item: pytest.Item) -> None:
    """Undo the declarations of a test when it ends, if pyops has been imported."""
    if "pyops._core.ops.op_registry" not in sys.modules or _ISOLATED in item.stash:
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

        from . import InferenceSession
        from .testing import Sample

        if sess_options is None:
            sess_options = onnxruntime.SessionOptions()
            sess_options.intra_op_num_threads = sess_options.inter_op_num_threads = 1
        model = source.model(dynamic=True) if isinstance(source, Sample) else source
        return InferenceSession(model, sess_options, **arguments)

    return make


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Return the id of a sample, so that tests are named after it."""
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
    return ["the outputs are the expected ones", str(expected.difference(actual))]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the checks that ``--pyops-check`` requests.

    Runs before other plug-ins, so that ``-k`` selects among the checks too.
    """
    if not config.getoption("--pyops-check"):
        return
    from ._display.op_table import list_ops
    from .testing import Sample

    samples: dict[Any, dict[str, Sample | None]] = {}
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        for sample in parameters:
            if isinstance(sample, Sample):
                samples.setdefault(sample.op, {}).setdefault(sample.id, sample)
    for op in list_ops():
        given = samples.get(op, {}) | ({"": None} if op.samples or op not in samples else {})
        version = "" if op.version == 1 else f"-{op.version}"
        for name, sample in given.items():
            id = f"{op.domain}::{op.name}{version}{f'[{name}]' if name else ''}"
            items.append(_Check.from_parent(session, name=id, nodeid=f"pyops-check::{id}", call=sample or op))


class _Check(pytest.Item):
    """A test item: all checks of an op on one sample."""

    def __init__(self, *, call: Any, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._call = call

    def runtest(self) -> None:
        """Run the checks, or skip them if no inputs can be generated from the op's signature."""
        from . import Op
        from .errors import InputError
        from .testing import check
        from .testing._check import example

        sample = self._call
        if isinstance(sample, Op) and sample.samples is None:
            try:
                sample = example(sample, {})
            except InputError as error:
                pytest.skip(str(error))
        check(sample)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the report of the checks instead of a traceback through pyops."""
        report = getattr(excinfo.value, "report", None)
        return f"{excinfo.value}\n\n{report}" if report else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where the op is declared."""
        op = getattr(self._call, "op", self._call)
        path, _, line = op.location.rpartition(":")
        return (Path(path), int(line) - 1, self.name) if path else (self.session.path, None, self.name)
