"""Tools for testing ops: `check`, which runs every check of an op in one call, and samples for tests.

The modules:

- `_check` lists the checks and runs them; `_report` holds their results.
- `_kernel_checks` (the kernel as a plain function), `_attribute_checks`, `_shape_checks`, `_thread_checks`,
  `_engine_checks` (sessions, CUDA included), `_torch_checks` and `_generated_checks` are the checks.
- `_case` is what every check gets: a `Sample` (`_sample`), the kernel's results for it, and inputs derived from it
  (`_variations`). `_examples` generates a sample when the caller passes no inputs.
- `_outputs` compares arrays, `_engines` creates a session for each engine, and `strategies` is for hypothesis.

The pytest plug-in is `pyops._pytest_plugin`. It isolates tests as `isolated_declarations` does.

Examples
--------
>>> import numpy as np, pyops
>>> from pyops.kernels.reductions import cumprod
>>> sample = pyops.testing.Sample(cumprod, np.array([3, 4]), dim=0).with_expected([3, 12])
>>> report = pyops.testing.check(sample, checks=["expected", "engine_*"])
>>> report.ok
True
"""

from .._ops.registry import isolated_declarations
from ._check import CHECKS, check
from ._outputs import Outputs, assert_close
from ._report import CheckError, CheckReport, CheckResult
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
