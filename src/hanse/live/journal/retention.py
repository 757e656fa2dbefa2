"""What of a journal's past is kept when a new snapshot is made."""

import msgspec

from hanse.live.journal.layout import Floor
from hanse.live.journal.survey import Segment

RETAIN_BYTES = 256 << 20
"""How much of what the newest snapshot makes superfluous is kept, for audits, read models and replays."""


class Kept(msgspec.Struct, frozen=True):
    """The outcome: everything below is dropped."""

    floor: Floor
    snapshots: list[int]
    """Positions of older snapshots that go."""
    segments: int
    """How many of the oldest segments go."""


def plan(
    segments: list[Segment], sizes: list[int], snapshots: dict[int, int], position: int, retain_bytes: int
) -> Kept:
    """Keep the farthest beginning (the first record, or a snapshot with all records after it) whose files
    take at most ``retain_bytes``, and in any case the newest snapshot before ``position`` with what follows
    it, so that one damaged snapshot is never the end.

    ``sizes`` are the bytes of the segments' files; ``snapshots`` has position and bytes of the present ones.
    """
    bases = sorted(before for before in snapshots if before < position)
    if segments[0].first == 1 and bases[:1] != [0]:
        bases.insert(0, 0)
    ends = [segment.first - 1 for segment in segments[1:]]

    def dropped(base: int) -> int:
        """How many segments end at or before that base."""
        return sum(end <= base for end in ends)

    def cost(base: int) -> int:
        old = [size for end, size in zip(ends, sizes, strict=False) if base < end <= position]
        return sum(old) + sum(size for before, size in snapshots.items() if base <= before < position)

    base = next((each for each in bases[:-1] if cost(each) <= retain_bytes), bases[-1] if bases else position)
    count = dropped(base)
    oldest = segments[count]
    kept = [before for before in snapshots if base <= before < position]
    floor = Floor(min([*kept, position]), oldest.first, oldest.chain, oldest.allocated)
    return Kept(floor, sorted(before for before in snapshots if before < base), count)
