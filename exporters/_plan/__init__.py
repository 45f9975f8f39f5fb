"""The plan of an export: what computes each call of the captured graph, and why.

It may import everything of exporters but its public verbs.
"""
