"""Records that all rooms share: frozen ``msgspec`` structs, ids, their rules; no I/O, no NumPy."""
