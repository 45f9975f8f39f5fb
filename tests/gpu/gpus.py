"""What a machine lacks to run the tests that need a GPU."""

import functools


@functools.cache
def missing_gpu() -> str:
    """Why CuPy cannot compute here; empty where it can."""
    from pyops import errors
    from pyops._core.cuda import devices

    try:
        devices.cupy_with_gpu("a test")
    except errors.MissingDependencyError:
        return "CuPy is not installed"
    except errors.DeviceError:
        return "CuPy finds no NVIDIA GPU"
    return ""


@functools.cache
def missing_provider() -> str:
    """Why ONNX Runtime cannot compute on a GPU here; empty where it can."""
    import onnxruntime

    available = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return missing_gpu() or ("" if available else "this onnxruntime has no CUDAExecutionProvider")
