"""First shell: virtual time, a faulty network, crash faults and league-wide checkers."""
