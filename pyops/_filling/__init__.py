"""Nodes of ONNX's operators that ONNX Runtime has no kernel for, and what computes them instead.

`filling.fill` rewrites a model so that ONNX Runtime runs it, with ops for the nodes that it cannot compute in another
element type either.
"""
