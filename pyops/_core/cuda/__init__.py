"""All of CUDA: devices, CuPy arrays, nodes that CUDA kernels compute, and the execution provider."""
