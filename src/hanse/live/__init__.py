"""Live daemons: the machines with clock, disk, network and backends; the only package that uses asyncio."""
