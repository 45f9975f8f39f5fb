"""The plan of an export: what computes each call of the captured graph, and why.

It may import the stages before it, and what translates calls: `exporters._lowering`, `_library` and `_fallback`.
"""
