"""What brokers learn of elastic tasks and tell each other: sums and counts, nothing of any single task."""

import msgspec


class DurationStats(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Completed tasks of one kind at one size."""

    cpu: int
    """Milli-CPU."""
    gpu: int
    total: int
    """Microseconds that they ran, all together."""
    count: int


class KindStats(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that one broker has seen of a kind. A later version replaces an earlier one: they never add up."""

    kind: str
    """What a tenant calls a job and its group."""
    version: int
    """The broker's count of its changes, after the latest change of this kind."""
    sizes: tuple[DurationStats, ...]


class DurationStatsUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="experience"):
    """A broker's own sums, as far as they changed after one of its versions and up to another one."""

    since: int
    until: int
    """Kinds of versions in between that are not listed were forgotten, or have a later version by now."""
    kinds: tuple[KindStats, ...] = ()
    acked_version: int = 0
    """Up to which of its versions the receiver's own sums have arrived here."""
