"""Elastic tasks at a broker: their sizes, learned durations, and advice of a policy process."""
