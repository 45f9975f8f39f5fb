"""Torch operators as ONNX nodes.

- `translations`: what is registered; of an Op, `op_translation`; of an onnxscript function, `functions`
- `nodes`: emitting them; `opset_check`: whether they mean the same in another opset; `returned`: what a
  translation gives back
- `contrib_ops`: translations to ONNX Runtime's own operators
"""
