"""Filled nodes with random attributes and optional inputs compute what ONNX Runtime's kernels of other types do."""

from collections import Counter

import pytest
from filled_nodes import NODES, problems

pytestmark = pytest.mark.stress

COUNT = 60
REFUSED = {"GlobalMaxPool", "Upsample"}
"""Operators that are not filled: the reference implementation gets them wrong."""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("op_type", NODES)
def test_filled_nodes_agree_with_kernels_of_other_types(op_type: str, seed: int):
    seen: Counter[str] = Counter()
    found = problems(op_type, seed, COUNT, seen)
    assert not found, "\n".join(found)
    assert seen["filled" if op_type not in REFUSED else "refused"] or op_type == "RMSNormalization", seen
