"""Torch's tensors, operators and schemas in terms of NumPy and ONNX, by torch's public interfaces.

It may import `exporters._torch_private` and pyops.
"""
