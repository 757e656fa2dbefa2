"""Training and privacy; the only package that imports torch."""
