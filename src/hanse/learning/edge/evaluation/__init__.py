"""Measurements of policies and trained networks, and the page of results."""
