"""Lowering of torch calls to ops of `pyops.kernels`: a row for each operator, and the whole translation table.

It may import `exporters._lowering` and what that may.
"""
