"""A plug-in for Hanse: a queue order, a placer and a backend."""
