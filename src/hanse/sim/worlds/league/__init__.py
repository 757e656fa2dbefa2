"""The real brokers, wardens and runners in a world."""
