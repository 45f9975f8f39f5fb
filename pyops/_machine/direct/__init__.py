"""Direct calls: ordinary calls of plain kernels, as machine code."""
