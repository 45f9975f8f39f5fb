"""The extensions engine: ops hosted through onnxruntime-extensions, where the native engine does not work.

onnxruntime-extensions is imported on first use.
"""
