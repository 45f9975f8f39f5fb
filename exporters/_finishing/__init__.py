"""Finishing of an exported model: opset imports, functions, optimization, and the `Program`.

It may import `exporters._lowering` and what that may.
"""
