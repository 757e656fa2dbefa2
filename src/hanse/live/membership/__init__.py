"""A league that changes while it runs: one numbered league file, agreed on by the brokers, told to all."""
