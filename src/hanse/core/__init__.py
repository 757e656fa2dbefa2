"""Sans-IO state machines. ``handle(event) -> effects``: no clock, no randomness, no I/O, no logging."""
