"""The multi-cluster elastic-task environment of source 002, as arrays stepping many episodes at once."""
