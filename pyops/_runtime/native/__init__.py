"""The native engine: ops hosted through ONNX Runtime's C API, called with ctypes.

`session` hosts the ops of a session, `engine` has the callbacks that ONNX Runtime calls, and the ``*_node`` modules
each compute one kind of node: a plain, a compiled or a CUDA kernel.
"""
