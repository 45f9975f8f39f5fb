"""Ops (a signature with its kernels and shape function), and where they come from.

Holds the decorator, the registry, plug-ins, and declarations in the form of onnxruntime-extensions. It knows nothing of
models and sessions.
"""
