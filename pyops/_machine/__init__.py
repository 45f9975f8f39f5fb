"""All that makes machine code: direct calls, compiled kernels, and libraries of them."""
