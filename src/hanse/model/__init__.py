"""Records: what the league speaks about. Frozen ``msgspec`` structs, ids and their rules; no I/O, no NumPy."""
