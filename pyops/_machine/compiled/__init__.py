"""Kernels compiled to machine code by numba (``compile=True``), which ONNX Runtime calls without the interpreter.

Modules that compile import numba, and are themselves imported on first use.
"""

from .compiled_kernel import compile_kernel, make

__all__ = ["compile_kernel", "make"]
