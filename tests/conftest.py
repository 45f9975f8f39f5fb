import os
from collections.abc import Iterator

import pytest

from pyops import registry
from tests import scripts


@pytest.fixture(autouse=True, scope="session")
def machine_code_is_kept_with_what_pytest_keeps(pytestconfig: pytest.Config) -> None:
    os.environ["PYOPS_CACHE_DIR"] = str(pytestconfig.cache.mkdir("machine_code"))


def _restore_declarations() -> Iterator[None]:
    before = {key: dict(versions) for key, versions in registry._ops.items()}
    providers = dict(registry.providers)
    yield
    registry.providers.clear()
    registry.providers.update(providers)
    registry._ops.clear()
    registry._ops.update(before)


declarations_of_a_test_do_not_leak = pytest.fixture(autouse=True)(_restore_declarations)
declarations_of_a_module_do_not_leak = pytest.fixture(autouse=True, scope="module")(_restore_declarations)


@pytest.fixture(params=["native", "extensions"])
def engine_of_scripts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each engine in turn: the sessions of scripts host ops by it."""
    if request.param == "extensions":
        pytest.importorskip("onnxruntime_extensions")
    monkeypatch.setattr(scripts, "ENGINE", request.param)
    return str(request.param)
