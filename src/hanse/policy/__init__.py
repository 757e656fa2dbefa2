"""Pure decisions over columns: queue orders, placers, sizers, and the compiled kernels with their NumPy
twins."""
