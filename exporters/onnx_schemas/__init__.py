"""ONNX's own schemas of the ops: made by `op_schema`, with `inference` of types and shapes; onnx's by `registration`."""
