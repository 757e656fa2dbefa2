"""Shell 1: virtual time, a network that misbehaves, crash faults and league-wide checkers."""
