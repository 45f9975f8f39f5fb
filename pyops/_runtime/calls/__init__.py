"""What both engines share: exceptions passing through ONNX Runtime, interrupts, timing.

May import `pyops._schema` and `pyops._ops`.
"""
