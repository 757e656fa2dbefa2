"""Command line: its root, what its commands share, and how they draw and tell."""
