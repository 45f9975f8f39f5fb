"""What the onnx package does for ops: schemas of them, and types of the values in a model."""
