"""How ONNX Runtime calls an Op."""
