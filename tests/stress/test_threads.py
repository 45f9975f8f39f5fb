"""Eight threads on one session, ten thousand runs."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

import pyops
from pyops import onnx_op
from tests.helpers.models import chain

pytestmark = pytest.mark.stress


def test_they_give_the_results_of_one():
    @onnx_op("threads::Mix")
    def mix(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.cumsum(x[::-1])

    session = pyops.InferenceSession(chain("threads::Mix", "Neg", "threads::Mix"))
    inputs = [np.random.default_rng(seed).normal(size=seed % 50).astype(np.float32) for seed in range(500)]
    expected = [session.run(None, {"x": x})[0].tobytes() for x in inputs]

    def run(number: int) -> bool:
        index = number % len(inputs)
        return session.run(None, {"x": inputs[index]})[0].tobytes() == expected[index]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(10_000)))
