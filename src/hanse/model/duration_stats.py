"""Durations of elastic tasks that brokers exchange: sums and counts, nothing of any single task."""

import msgspec


class DurationStats(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Completed tasks of one kind at one size."""

    cpu: int
    """Milli-CPU."""
    gpu: int
    total: int
    """Sum of their run times in microseconds."""
    count: int


class KindStats(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Sums of one broker for a kind. A later version replaces an earlier one; they are never added."""

    kind: str
    """Tenant's name of a job and its group."""
    version: int
    """Count of the broker's changes, after the latest change of this kind."""
    sizes: tuple[DurationStats, ...]


class DurationStatsUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="experience"):
    """Own sums of a broker that changed after one of its versions and up to another one."""

    since: int
    until: int
    """Last version covered. Kinds in between that are not listed were dropped, or have a later version."""
    kinds: tuple[KindStats, ...] = ()
    acked_version: int = 0
    """Version of the receiver up to which its own sums have arrived here."""
