"""ONNX Runtime's own sessions with the library at `pyops.get_library_path`, in this process and in scripts."""

import onnxruntime

import pyops
from tests.helpers.scripts import PREAMBLE, run_plain_script

SETUP = """
sys.modules["torch"] = None  # which onnxruntime-extensions imports if it is there, and that takes long
import onnxruntime_extensions as theirs
from onnx import helper

def plain(model, options=None):
    options = options or onnxruntime.SessionOptions()
    options.register_custom_ops_library(pyops.get_library_path())
    return onnxruntime.InferenceSession(model.SerializeToString(), options)

@onnx_op("plain::Op")
def op(x: F32) -> F32:
    if x[0] < 0:
        raise ValueError("negative")
    return x + 1

@onnx_op("plain::Text")
def text(x: Str) -> Str:
    return x
"""


def run_plain_sessions(script: str, expected: str) -> str:
    return run_plain_script(PREAMBLE + SETUP + script, expected)


def session(model):
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(pyops.get_library_path())
    return onnxruntime.InferenceSession(model.SerializeToString(), options)
