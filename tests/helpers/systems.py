"""Markers of tests of what only some systems have."""

import importlib.util
import os
import signal
from pathlib import Path

import numpy as np
import pytest

HAS_FORK = hasattr(os, "fork")

needs_fork = pytest.mark.skipif(not HAS_FORK, reason="Windows has no fork")
needs_posix = pytest.mark.skipif(not HAS_FORK, reason="Windows has other errors, and rights, of files")
needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows lacks some signals")
needs_long_double = pytest.mark.skipif(
    np.dtype(np.longdouble) == np.float64, reason="the long double of this system is a double, which ONNX has"
)
needs_limits = pytest.mark.skipif(
    importlib.util.find_spec("resource") is None, reason="Windows does not limit the size of a process's files"
)
needs_proc = pytest.mark.skipif(not (HAS_FORK and Path("/proc/self/statm").exists()), reason="needs /proc")
