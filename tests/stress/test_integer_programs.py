"""Random programs of integer divisions and shifts give what torch gives, and none ends the process."""

import logging

import pytest
from integer_programs import failures

pytestmark = pytest.mark.stress

COUNT = 60


@pytest.mark.parametrize("seed", range(10))
def test_exported_models_compute_as_torch(seed: int):
    logging.disable(logging.CRITICAL)
    try:
        found = failures(seed, COUNT)
    finally:
        logging.disable(logging.NOTSET)
    assert not found, "\n".join(found)
