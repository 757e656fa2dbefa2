"""Failover of brokers: copies of jobs at an heir, their adoption, and what ends it."""
