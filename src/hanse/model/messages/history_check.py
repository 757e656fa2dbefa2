"""What two members remember of their talk: asked by one that comes back, before it says anything else."""

import msgspec


class HistoryQuery(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="recall"):
    """How much have you had from me, and how much have I acknowledged to you?"""

    number: int
    """Drawn at random for each life of the sender; the answer repeats it."""


class HistoryReply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="recalled"):
    """The answer. Numbers are those of the link between the two."""

    number: int
    received: int
    """The last message taken from whoever asks."""
    acked: int
    """The last message that whoever asks has acknowledged."""
