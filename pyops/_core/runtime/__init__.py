"""Sessions that run models with the declared ops.

`inference_session` has the public `InferenceSession`, `engine_choice` selects the engine (`native` or `extensions`),
`reference_ops` evaluates models without ONNX Runtime, and the other modules support them.
"""
