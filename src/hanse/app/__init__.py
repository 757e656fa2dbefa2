"""Composition root: configuration, wiring and the command line."""
