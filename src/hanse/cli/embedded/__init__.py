"""League on this machine: creating its files, and starting and stopping its members as processes."""
