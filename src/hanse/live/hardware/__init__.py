"""Detection of this machine's hardware, by reading what its kernel and drivers say."""
