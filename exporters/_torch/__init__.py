"""Conversion of torch's tensors and schemas to NumPy and ONNX, by torch's public interfaces.

It may import `exporters._torch.private` and pyops.
"""
