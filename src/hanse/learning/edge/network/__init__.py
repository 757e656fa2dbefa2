"""Trained network in NumPy: features, file, and its use for one cluster or for a broker's requests."""
