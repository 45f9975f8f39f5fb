"""Tools for testing ops: `check`, which runs every check of an op in one call, and samples for tests.

The modules:

- `_check` collects the checks and runs them, on generated inputs if none are given; `_check_report` has their results.
- `_kernel_checks` (the kernel as a plain function, and its shape function), `_thread_checks`, `_engine_checks`
  (sessions, CUDA included) and `_decomposition_checks` are the checks. Those of PyTorch operators are in
  `exporters._checks`, whose entry points name them.
- `_case` is what every check gets: a `Sample` (`_sample`), the kernel's results for it, and inputs derived from it
  (`_variations`).
- `strategies` is for hypothesis.
- `_model_comparison` compares two models, and `_wrong_node` finds the first wrong node of a model.

The pytest plug-in is `pyops._pytest_plugin`. It isolates tests with `isolated_declarations`.

Examples
--------
>>> import numpy as np, pyops
>>> from pyops.kernels.reductions import cumprod
>>> sample = pyops.testing.Sample(cumprod, np.array([3, 4]), dim=0).with_expected([3, 12])
>>> report = pyops.testing.check(sample, checks=["expected", "engine_*"])
>>> report.ok
True
"""

from .._core.ops.op_registry import isolated_declarations
from .._tolerances import Outputs, assert_close
from ._check import CHECKS, check
from ._check_report import CheckError, CheckReport, CheckResult
from ._sample import Sample

__all__ = [
    "CHECKS",
    "CheckError",
    "CheckReport",
    "CheckResult",
    "Outputs",
    "Sample",
    "assert_close",
    "check",
    "isolated_declarations",
]
