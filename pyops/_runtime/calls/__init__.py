"""What both engines share: exceptions passing through ONNX Runtime, interrupts, timing."""
