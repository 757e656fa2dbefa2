"""Pure decisions over columns: queue orders, placers, rankers, sizers, and kernels in C and in NumPy."""
