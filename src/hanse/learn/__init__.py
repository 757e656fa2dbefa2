"""Training and privacy; the only room that knows torch."""
