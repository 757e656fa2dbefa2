"""Replay: one workload through many policies, with measurements, repeats, reports and sweeps."""
