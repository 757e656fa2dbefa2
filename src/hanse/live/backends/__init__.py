"""What wardens run work on: one small interface, and the adapters behind it."""
