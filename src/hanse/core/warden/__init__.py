"""Warden: the machine that is the authority of one cluster, and its parts."""
