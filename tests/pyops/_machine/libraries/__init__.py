"""Libraries of compiled kernels."""
