"""Finishing of an exported model: opset imports, functions, optimization, and the `Program`.

It may import `exporters._arguments`, `exporters._capture`, `exporters._lowering`, `exporters._report` and what those
may.
"""
