"""Messages with which a restarted member compares its link with a peer, before any other message."""

import msgspec


class HistoryQuery(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="recall"):
    """Question how many messages the peer has taken, and how many of its own were acknowledged."""

    number: int
    """Random number of each life of the sender; the reply repeats it."""


class HistoryReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="recalled"):
    """Reply to a ``HistoryQuery``. Numbers are those of the link between the two."""

    number: int
    received: int
    """Last message taken from the sender of the query."""
    acked: int
    """Last message that the sender of the query has acknowledged."""
