"""Configuration of members: home, nodes, and the history of their settings."""
