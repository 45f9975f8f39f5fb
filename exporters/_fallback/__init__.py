"""Fallback: nodes that call torch for operators that nothing else supports, and their kernels.

It may import everything of exporters but its public verbs.
"""
