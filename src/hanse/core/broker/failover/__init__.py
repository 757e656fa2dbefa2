"""Failover of brokers: copies of jobs at a standby, takeover of shards, and teardown of taken shards."""
