"""Retention of a journal's history when a new snapshot is written."""

import msgspec

from hanse.live.journal.layout import Floor
from hanse.live.journal.survey import Segment

RETAIN_BYTES = 256 << 20
"""Bytes of files kept from before the newest snapshot, for audits, read models and replays."""


class RetentionPlan(msgspec.Struct, frozen=True):
    """Files to drop, and the resulting floor."""

    floor: Floor
    snapshots: list[int]
    """Positions of the older snapshots to drop."""
    segments: int
    """Number of the oldest segments to drop."""


def plan_retention(
    segments: list[Segment], sizes: list[int], snapshots: dict[int, int], position: int, retain_bytes: int
) -> RetentionPlan:
    """Keep the oldest base (the first record, or a snapshot with all records after it) whose files take at
    most ``retain_bytes``. Always keep the newest snapshot before ``position`` with the records after it, so
    that one damaged snapshot is never fatal.

    ``sizes``: bytes of the segments' files; ``snapshots``: position and bytes of the present snapshots.
    """
    bases = sorted(before for before in snapshots if before < position)
    if segments[0].first == 1 and bases[:1] != [0]:
        bases.insert(0, 0)
    ends = [segment.first - 1 for segment in segments[1:]]

    def count_dropped(base: int) -> int:
        """Count the segments that end at or before a base."""
        return sum(end <= base for end in ends)

    def cost(base: int) -> int:
        old = [size for end, size in zip(ends, sizes, strict=False) if base < end <= position]
        return sum(old) + sum(size for before, size in snapshots.items() if base <= before < position)

    base = next((each for each in bases[:-1] if cost(each) <= retain_bytes), bases[-1] if bases else position)
    count = count_dropped(base)
    oldest = segments[count]
    kept = [before for before in snapshots if base <= before < position]
    floor = Floor(min([*kept, position]), oldest.first, oldest.chain, oldest.allocated)
    return RetentionPlan(floor, sorted(before for before in snapshots if before < base), count)
