"""Configuration of members: league file, home, nodes, and the history of their settings."""
