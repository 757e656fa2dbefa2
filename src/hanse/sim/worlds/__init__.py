"""Worlds: unequal clusters with networks, data and neighbours, and the work that arrives in them."""
