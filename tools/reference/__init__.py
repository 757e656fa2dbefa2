"""Reference pages and diagrams of `docs/`, generated from the tables that the code itself uses."""
