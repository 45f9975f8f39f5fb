"""Reading ONNX models as data: the op of each node, and the names under which a session hosts the ops.

Nothing here runs a model, or code that a model names.
"""
