"""Nodes that call torch, for operators that nothing else computes, and the export that falls back to them.

It may import everything of exporters but its public verbs.
"""
