"""The native engine: ops in ONNX Runtime's C API, through ctypes.

`session` hosts the ops of a session, `engine` has what ONNX Runtime calls, and the ``*_node`` modules compute one
node each: a plain, a compiled or a CUDA kernel. It may import what lies below `pyops._runtime`, and
`pyops._runtime.calls`.
"""
