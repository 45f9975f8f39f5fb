"""Lowering of torch calls to ops of `pyops.kernels`: a table with a row for each operator."""
