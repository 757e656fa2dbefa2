"""Checkers of a simulated league: they judge by what really happened, not by what any machine believes."""
