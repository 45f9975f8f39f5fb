"""What the calls of every engine share: exceptions on their way through ONNX Runtime, interrupts, and time.

It may import `pyops._schema` and `pyops._ops`.
"""
