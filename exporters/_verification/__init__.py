"""How far torch's and ONNX Runtime's results are apart: the report, values inside the model, a third opinion.

It may import `exporters._torch`, `exporters._torch_private` and pyops.
"""
