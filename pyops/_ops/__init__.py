"""Ops: a signature with its kernels and its shape function, and where ops come from.

The decorator, the registry, plug-ins, and functions that were declared with onnxruntime-extensions. It may import
`pyops._schema` and `pyops._compiled`; it knows nothing of models and sessions.
"""
