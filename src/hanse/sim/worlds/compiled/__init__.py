"""Compiled worlds."""
