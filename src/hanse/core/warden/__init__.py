"""Warden: the machine that owns the truth of one cluster, and its parts."""
