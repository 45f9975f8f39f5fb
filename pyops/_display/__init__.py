"""What people look at: tables of ops and of a model's nodes, Netron, IPython, shorter tracebacks.

It may import everything but `pyops.testing` and `pyops._cli`; only those and the package itself import it.
"""
