"""The plan of an export: what computes each call of the captured graph, and why.

It may import every other subpackage of exporters but `exporters._torchscript`.
"""
