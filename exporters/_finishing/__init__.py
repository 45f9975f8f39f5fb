"""Finishing of an exported model: opset imports, functions, optimization, checks of sizes.

It may import `exporters._arguments`, `exporters._capture`, `exporters._lowering`, `exporters._report` and what those
may.
"""
