"""Sessions that run models with the declared ops.

`session` has the public `InferenceSession`, `engine_choice` selects the engine (`native` or `extensions`), `reference`
evaluates models without ONNX Runtime, and the other modules support them.
"""
