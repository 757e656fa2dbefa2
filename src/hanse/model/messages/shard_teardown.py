"""How an adopted shard comes to its end: what its owner, its former owners and the wardens say about it."""

import msgspec


class CloseShard(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="close"):
    """To a warden: nothing is left of this adopted shard, so forget it, and refuse it for ever."""

    shard: str
    term: int


class CloseShardReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="closed"):
    """A warden's answer to ``CloseShard``."""

    shard: str
    term: int
    """As asked."""
    done: bool
    """Whether it is closed here; not while something of it runs or is unsettled here, or it has another
    owner."""


class OwnershipReleased(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="handed"):
    """To the adopter of a shard: its former owner has let go of it, and so has everybody who owned it
    before."""

    shard: str
    term: int
    """The adopter's, as ``OwnershipTransferred`` said it."""


class DropReplicas(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="over"):
    """To every peer: the sender does not own this shard any more, so the copies of jobs that it has sent are
    good for nothing."""

    shard: str
