"""Elastic tasks at a broker: their sizes, what was learned of their durations, and advice."""
