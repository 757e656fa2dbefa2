"""Pure decisions over columns: queue orders, placers, sizers, and compiled kernels with NumPy equivalents."""
