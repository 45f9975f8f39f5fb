"""ONNX models, read as data: which op each node means, and under which name a session hosts that op.

Nothing here runs a model, or code that a model names. It may import `pyops._schema` and `pyops._ops`.
"""
