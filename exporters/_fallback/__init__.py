"""Fallback: nodes that call torch for operators that nothing else supports, and their kernels.

It may import `exporters._lowering` and what that may.
"""
