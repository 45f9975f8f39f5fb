import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyops.testing import isolated_declarations
from tests.helpers import scripts
from tests.helpers.tiers import exhaustive


@pytest.fixture(autouse=True, scope="session")
def machine_code_is_kept_with_what_pytest_keeps(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = getattr(pytestconfig, "cache", None)  # not with -p no:cacheprovider
    folder = tmp_path_factory.mktemp("machine_code") if cache is None else cache.mkdir("machine_code")
    os.environ["PYOPS_CACHE_DIR"] = str(folder)


@pytest.fixture(autouse=True, scope="module")
def declarations_of_a_module_do_not_leak() -> Iterator[None]:
    with isolated_declarations():
        yield


@pytest.fixture(params=["native", exhaustive("extensions")])
def engine_of_scripts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each engine in turn, by which the sessions of scripts host ops."""
    if request.param == "extensions":
        pytest.importorskip("onnxruntime_extensions")
    monkeypatch.setattr(scripts, "ENGINE", request.param)
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module of ops, and an output of 80 columns that is not a terminal."""
    from tests.pyops._cli.commands import OPS  # which imports typer

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "typed_ops.py").write_text(OPS)
    yield tmp_path
    for name in ("typed_ops", "typed_plugin"):
        sys.modules.pop(name, None)
