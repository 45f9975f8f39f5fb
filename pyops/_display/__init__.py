"""Displays for people: tables of ops and of a model's nodes, Netron, IPython, shortened tracebacks."""
