"""Changes of a running league: one numbered league file, agreed on by the brokers, distributed to all."""
