"""The page of the kernel library."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_it_is_made_of_the_declarations():
    made = runpy.run_path(str(ROOT / "docs/kernel_library.py"))
    assert made["PAGE"].read_text() == made["page"](), "run python docs/kernel_library.py"
