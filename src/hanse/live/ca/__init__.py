"""Certificate authority at work: its short-lived process, who asks it, and its copies at brokers."""
