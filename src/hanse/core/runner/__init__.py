"""Runner: the machine that starts and stops attempts on its nodes."""
