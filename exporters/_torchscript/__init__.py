"""Lowering by the exporter that is built on TorchScript's tracing (``dynamo=False``), which torch has deprecated.

It may import `exporters._finishing`, `exporters._library`, `exporters._lowering` and what those may.
"""
