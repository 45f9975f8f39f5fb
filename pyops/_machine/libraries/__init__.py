"""Compiled kernels as a custom-op library of ONNX Runtime, which needs no Python: `pyops.build`.

numba compiles the kernels as it does for sessions; its LLVM modules become one object file, which a C compiler links
with ``runtime.c``, the same for every library. Modules that compile import numba.
"""
