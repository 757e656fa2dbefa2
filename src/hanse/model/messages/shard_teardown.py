"""Messages of the teardown of a shard, between its owner, its former owners and the wardens."""

import msgspec


class CloseShard(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="close"):
    """Order to a warden: nothing is left of this shard; forget it, and refuse it permanently."""

    shard: str
    term: int


class CloseShardReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="closed"):
    """Reply of a warden to ``CloseShard``."""

    shard: str
    term: int
    """Term of the order."""
    done: bool
    """True if closed here; False while an attempt or unacknowledged end is here, or the owner is another
    one."""


class OwnershipReleased(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="handed"):
    """Message to the new owner of a shard: its former owner has released it, and so has every owner
    before."""

    shard: str
    term: int
    """Term of the new owner, as in ``OwnershipTransferred``."""


class DropReplicas(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="over"):
    """Message to every peer: the sender no longer owns this shard, so the copies of jobs that it has sent are
    useless."""

    shard: str
