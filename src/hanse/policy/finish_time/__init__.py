"""Estimates of finish time: learned run times, transfers, crowding, and when to wait for a better node."""
