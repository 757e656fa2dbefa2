"""Records: what the league speaks about. Frozen ``msgspec`` structs, ids, their rules; no I/O, no NumPy."""
