"""Multi-cluster elastic-task environment of source 002, as arrays that step many episodes at once."""
