"""Testing ops: one call that checks everything, samples, and what tests need around them.

Where what is:

- `check`: the table of all checks, and running them; the `report` that they give
- the checks: of the kernel by itself (`kernel_checks`, with what is `registered` beside it), `shape_checks`,
  `thread_checks` (by `interleaving`), `engine_checks`, `torch_checks`, `device_checks`, `generated_checks`
- what checks look at: a `case`, which is a `sample` and its `variations`; `examples` where no sample is given
- `outputs` that compare as one, `sample_model` and `engines` for sessions, `strategies` for hypothesis

The pytest plug-in is `pyops.pytest_plugin`, and `pyops.isolation` what it and this share.
"""

from ..isolation import isolated_declarations
from .check import CHECKS, check
from .outputs import Outputs, assert_close
from .report import CheckError, CheckReport, CheckResult
from .sample import Sample

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
