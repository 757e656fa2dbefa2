"""Replay: one workload through many policies, with measures, repeats, reports and sweeps that can be
trusted."""
