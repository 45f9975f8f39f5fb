"""All of torch that may break: tensors and schemas as NumPy's and ONNX's, by torch's public interfaces.

What is not public is in `private`.
"""
