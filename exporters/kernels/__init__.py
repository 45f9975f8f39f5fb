"""Which op of `pyops.kernels` carries which torch operator: the `table`, a module for each family, and `library`."""
