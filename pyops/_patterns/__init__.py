"""Ops into existing models: normal form, patterns, places, the comparison of numbers, and reports.

It needs onnx_ir, which the extra ``replace`` installs, and `pyops.testing`, which runs parts of models.
"""
