"""Command line: the root command, helpers shared by the commands, and terminal output."""
