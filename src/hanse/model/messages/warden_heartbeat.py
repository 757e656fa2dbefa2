"""Heartbeats with which a warden renews the leases of shards, and the reply of their broker."""

import msgspec

from hanse.model.drains import Drain
from hanse.model.ids import ClusterId, Instant, ShardId


class WardenHeartbeat(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="beat"):
    """Sign of life of a warden, and its request to renew its leases from this broker."""

    cluster: ClusterId
    epoch: int
    sent_at: Instant
    version: int
    rounds: tuple[tuple[ShardId, int], ...]
    """Lease round of each shard that this broker owns according to the warden."""
    drains: tuple[Drain, ...] = ()


class HeartbeatReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="beat_reply"):
    """Renewal by the broker; the lease counts from ``echo``, on the warden's clock."""

    echo: Instant
    shards: tuple[ShardId, ...]
