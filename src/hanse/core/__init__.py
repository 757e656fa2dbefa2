"""The sans-IO machines. ``handle(event) -> commands``: no clock, no randomness, no I/O, no logging."""
