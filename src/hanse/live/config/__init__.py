"""Configuration of members: league file, home, nodes, and the settings of earlier lives."""
