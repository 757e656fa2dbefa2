"""Policies without training: baselines of the literature, the priced rule, search over it, the guard."""
