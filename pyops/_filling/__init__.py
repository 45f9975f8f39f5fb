"""Nodes of ONNX's operators that ONNX Runtime has no kernel for, and who computes them instead.

`filling.fill` rewrites a model so that ONNX Runtime runs it, with ops for what it cannot compute in another element
type. It may import `pyops._models`, `pyops._ops`, `pyops._schema` and `pyops.errors`.
"""
