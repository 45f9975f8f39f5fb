"""The extensions engine: ops in onnxruntime-extensions, where the native engine does not work.

onnxruntime-extensions is imported when something first needs it. It may import what lies below `pyops._runtime`, and
`pyops._runtime.calls`.
"""
