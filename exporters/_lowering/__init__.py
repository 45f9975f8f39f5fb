"""Lowering of torch calls to ONNX nodes: the translations that users register, and the nodes that they emit.

It may import `exporters._torch` and pyops.
"""
