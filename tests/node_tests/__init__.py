"""ONNX's own node tests, run in ONNX Runtime with and without the nodes that `fill_missing` fills."""
