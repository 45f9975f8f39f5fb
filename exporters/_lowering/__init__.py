"""Calls of torch operators to ONNX nodes: the translations that users register, and the nodes that these emit.

It may import `exporters._torch`, `exporters._torch_private`, `exporters._onnx_schemas` and pyops.
"""
