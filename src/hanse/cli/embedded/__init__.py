"""League of this machine: how it is made, and its members started and stopped as processes."""
