"""Comparison of the values inside a model, and the reference evaluator as a third opinion.

It may import `exporters._torch`, `exporters._torch_private` and pyops.
"""
