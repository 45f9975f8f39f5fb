"""Client that runs a model in a process that cannot import torch."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exporters._program import Program
from exporters.errors import ExportError

_SCRIPT = Path(__file__).with_name("torchless.py")


def run_without_torch(program: Program, feed: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Return the outputs of a model, run in a process in which ``import torch`` fails.

    Raises
    ------
    ExportError
        The model does not run there, or the process has ended.
    """
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump((program.model_proto.SerializeToString(), dict(feed)), process.stdin)
        process.stdin.flush()
        answer = pickle.load(process.stdout)
    except (BrokenPipeError, EOFError):
        _process.cache_clear()
        raise ExportError(f"the process without torch ended with exit code {process.wait()}") from None
    if isinstance(answer, str):
        raise ExportError(f"without torch: {answer}")
    outputs: list[np.ndarray[Any, Any]] = answer
    return outputs


@functools.cache
def _process() -> subprocess.Popen[bytes]:
    # The process ends when its input is closed, which happens however this process ends.
    return subprocess.Popen([sys.executable, "-P", str(_SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
