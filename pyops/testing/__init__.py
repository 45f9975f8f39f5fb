"""Testing ops: one call that checks everything, samples, and what tests need around them.

Where what is:

- `check`: the table of all checks, and running them; the `report` that they give
- the checks: `kernel_checks`, of the kernel by itself; `attribute_checks`, `shape_checks`, `thread_checks` (by
  `interleaving`), `engine_checks`, `torch_checks`, `device_checks`, `generated_checks`
- what checks look at: a `case`, which is a `sample` and its `variations`; `examples` where no sample is given
- `outputs` that compare as one, `sample_model` and `engines` for sessions, `strategies` for hypothesis

The pytest plug-in is `pyops._pytest_plugin`, and `pyops._ops.isolation` what it and this share.

Examples
--------
>>> import numpy as np, pyops
>>> from pyops.kernels.cumulative import cumprod
>>> sample = pyops.testing.Sample(cumprod, np.array([3, 4]), dim=0).with_expected([3, 12])
>>> report = pyops.testing.check(sample, checks=["expected", "engine_*"])
>>> report.ok
True
"""

from .._ops.isolation import isolated_declarations
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
