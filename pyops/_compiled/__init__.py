"""Kernels as machine code: what ``compile=True`` asks numba for.

ONNX Runtime calls the code without the interpreter. It may import `pyops._schema`; numba is imported by the modules
that compile, when there is something to compile.
"""
