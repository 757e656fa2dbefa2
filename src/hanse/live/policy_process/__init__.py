"""Policy process: the trained network in a process of its own, and the broker's side of it."""
