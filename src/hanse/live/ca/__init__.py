"""Certificate authority: its short-lived process, the client of that process, and its copies at brokers."""
