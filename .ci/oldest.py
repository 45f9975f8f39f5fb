"""Prints, as constraints for pip, the oldest version of each package that pyproject.toml admits for the core."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
for requirement in project["dependencies"] + extras["cpu"] + extras["compiled"] + extras["kernels"] + extras["test"]:
    # What only runs the tests may be as new as it is.
    if re.match("array-api-compat|numpy|numba|ml-dtypes|onnx(?!-pyops)|scipy", requirement):
        print(requirement.replace(">=", "=="))
