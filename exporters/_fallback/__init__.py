"""Fallback: nodes that call torch for operators that nothing else supports, and the export that creates them.

It may import everything of exporters but its public verbs.
"""
