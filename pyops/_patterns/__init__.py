"""Ops into existing models: normal form, patterns, places, the comparison of numbers, and reports.

It stands on onnx_ir, which the extra ``replace`` brings, and on `pyops.testing`, which runs parts of models.
"""
