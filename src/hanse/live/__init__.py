"""Shell 2: daemons. One inbox, one consumer, outboxes; the only room that knows asyncio."""
