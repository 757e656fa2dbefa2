"""Broker: the machine that takes jobs and proposes where they run, and its parts."""
