"""Devices of a runner: which there are, who has them, what keeps others away."""
