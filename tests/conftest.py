import os
from collections.abc import Iterator

import pytest

from pyops.testing import isolated_declarations
from tests import scripts


@pytest.fixture(autouse=True, scope="session")
def machine_code_is_kept_with_what_pytest_keeps(pytestconfig: pytest.Config) -> None:
    os.environ["PYOPS_CACHE_DIR"] = str(pytestconfig.cache.mkdir("machine_code"))


@pytest.fixture(autouse=True, scope="module")
def declarations_of_a_module_do_not_leak() -> Iterator[None]:
    with isolated_declarations():
        yield


@pytest.fixture(params=["native", "extensions"])
def engine_of_scripts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each engine in turn: the sessions of scripts host ops by it."""
    if request.param == "extensions":
        pytest.importorskip("onnxruntime_extensions")
    monkeypatch.setattr(scripts, "ENGINE", request.param)
    return str(request.param)
