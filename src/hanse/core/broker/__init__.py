"""Broker: the machine that accepts jobs and proposes where their tasks run, and its parts."""
