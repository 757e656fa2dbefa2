"""Learned policies, each a vertical package; the rest of Hanse reaches them through tables by name."""
