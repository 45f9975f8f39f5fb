from collections.abc import Iterator

import pytest

from pyops import registry


@pytest.fixture(autouse=True)
def declarations_do_not_leak() -> Iterator[None]:
    before = {key: dict(versions) for key, versions in registry._ops.items()}
    yield
    registry._ops.clear()
    registry._ops.update(before)
