"""The extensions engine: ops hosted through onnxruntime-extensions, where the native engine does not work.

onnxruntime-extensions is imported on first use.
"""

from .. import InferenceSession as InferenceSession  # whose module says what to install where there is no ONNX Runtime
from .call_hook import watch
from .operator_registry import HOST_OP_TYPE, is_supported, reason_against, sizes
from .published_ops import get_library_path, register
from .session_host import SessionHost, check_input
