"""ONNX's own schemas of the ops.

- `op_schema`: one, from a Signature; `inference`: of its types and shapes
- `registration`: among onnx's own, for its checker and its shape inference
"""
