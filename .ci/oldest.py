"""Prints, as constraints for pip, the oldest version of what pyproject.toml admits for the core and for CUDA."""

import itertools
import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
chosen = (extras[name] for name in ("cpu", "cuda", "compiled", "kernels", "test"))
for requirement in itertools.chain(project["dependencies"], *chosen):
    # What only runs the tests may be as new as it is.
    if re.match("array-api-compat|cupy|numpy|numba|ml-dtypes|onnx(?!-pyops)|scipy", requirement):
        print(requirement.replace(">=", "=="))
