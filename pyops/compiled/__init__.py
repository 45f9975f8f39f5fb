"""Kernels that numba compiles, for ONNX Runtime to call without the interpreter."""
