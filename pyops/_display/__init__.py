"""Displays for people: tables of ops and of a model's nodes, Netron, IPython, shortened tracebacks.

May import everything except `pyops.testing` and `pyops._cli`; only those and the package itself import it.
"""
