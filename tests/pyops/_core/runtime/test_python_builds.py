"""Builds of Python that run no sessions."""

import subprocess
import sys

FREE_THREADED = """
import sysconfig

real = sysconfig.get_config_var
sysconfig.get_config_var = lambda name: 1 if name == "Py_GIL_DISABLED" else real(name)

import numpy as np
from numpy.typing import NDArray

import pyops
from pyops._cli.doctor import PROBES
from pyops.errors import EngineError


@pyops.onnx_op("builds::AddOne")
def add_one(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return x + 1


print(add_one(np.ones(1, np.float32)))
for use in (lambda: pyops.InferenceSession(""), lambda: pyops.patch_onnxruntime(), lambda: exec(PROBES["native"], {})):
    try:
        use()
    except EngineError as error:
        print(error)
"""


def test_a_free_threaded_build_is_named_by_whatever_needs_a_session():
    done = subprocess.run([sys.executable, "-c", FREE_THREADED], capture_output=True, text=True, check=False)
    number = ".".join(map(str, sys.version_info[:2]))
    message = (
        "pyops runs no sessions on free-threaded builds of Python, and this is one: "
        f"{sys.version.split(' (')[0]} at {sys.executable}; "
        f"run them on the build of Python {number} with a global interpreter lock"
    )
    assert done.stdout.splitlines() == ["[2.]", message, message, message], done.stderr
