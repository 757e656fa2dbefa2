"""A member's own clock: it never goes back, and nobody sets it.

It is ``CLOCK_BOOTTIME`` (which runs on while the machine sleeps, and does not depend on the wall clock) plus
an offset that keeps it continuous over the member's life. After a restart of the process the offset is the
same. After a restart of the machine the clock goes on from the last instant on record plus the time that has
passed by the wall clock. So instants of the journal can be compared with those of now.
"""

import time
from pathlib import Path
from typing import Final

import msgspec

from hanse.model.ids import Instant
from hanse.security.wall_time import wall_now

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_GAP_MAX: Final = 10 * 365 * 86_400 * 1_000_000
"""Longest time off, in microseconds. A longer one (a wall clock set by decades) counts as zero."""


class _SavedClock(msgspec.Struct, frozen=True):
    """Offset of a clock, and the boot of the machine that it belongs to."""

    boot: str
    offset: int


class Clock:
    """Clock in microseconds since some moment of the member's own."""

    __slots__ = ("offset",)

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    def now(self) -> Instant:
        """Return the present instant."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000 + self.offset

    def to_boottime(self, at: Instant) -> int:
        """Convert an instant to ``CLOCK_BOOTTIME`` in microseconds, which every process of the machine can
        read."""
        return at - self.offset

    @classmethod
    def resume(cls, path: Path, last_at: Instant, last_wall: int) -> "Clock":
        """Return the clock of a member that restarts.

        ``path`` is the file of the offset; ``last_at`` the last instant in its journal and ``last_wall`` the
        wall-clock time of that instant in microseconds (both 0 for a new member).
        """
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
        saved = _read(path)
        if saved is not None and saved.boot == boot:
            clock = cls(saved.offset)
        else:
            gap = wall_now() - last_wall
            clock = cls()
            clock.offset = last_at + (gap if 0 < gap <= _GAP_MAX and last_wall else 0) - clock.now()
        behind = last_at - clock.now()
        if behind > 0:
            clock.offset += behind
        _write(path, _SavedClock(boot, clock.offset))
        return clock


def _read(path: Path) -> _SavedClock | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_SavedClock)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _write(path: Path, saved: _SavedClock) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(saved))
    part.replace(path)
