"""Failover of brokers: copies of jobs at a standby, their adoption, and what ends it."""
