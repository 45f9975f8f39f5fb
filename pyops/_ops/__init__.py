"""Ops (a signature with its kernels and shape function), and where they come from.

Holds the decorator, the registry, plug-ins, and the adoption of functions declared with onnxruntime-extensions. It may
import `pyops._schema`, and knows nothing of models and sessions.
"""
