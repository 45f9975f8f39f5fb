"""Comparison of torch's and ONNX Runtime's results: the report, intermediate values, the reference evaluator.

It may import `exporters._torch`, `exporters._torch_private` and pyops.
"""
