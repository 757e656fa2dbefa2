"""Virtual time: one heap of things to come, one clock, one digest of all that happened.

Everything in the simulator is an entry ``(time, number, action, payload)`` of a plain heap. Time is true time
in integer microseconds; the number breaks ties in the order of scheduling, so a run is a pure function of its
seed. There are no coroutines and no event objects, because a heap of tuples is an order of magnitude faster.
"""

from collections.abc import Callable
from hashlib import sha256
from heapq import heappop, heappush
from itertools import count
from struct import pack
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hanse.sim.task_story import Story

Action = Callable[[Any], None]
Entry = tuple[int, int, Action, Any]

TRACE_WIDTH: Final = 4
"""Numbers kept of every event: true time, process and kind, and two that distinguish events of a kind."""
TRACE_NUMBERS_MAX: Final = 1 << 14
"""Numbers collected before they are hashed; checked only when so many may have come, not at every entry."""
ENTRIES_BETWEEN_FLUSH_CHECKS: Final = TRACE_NUMBERS_MAX // TRACE_WIDTH
"""Entries between two such checks."""
LAST_NUMBER: Final = 1 << 62
"""Number that sorts after every entry of the same time."""


class Violation(Exception):  # noqa: N818  a finding, not an error of the simulator
    """Broken promise of the league. Names the task, job or node concerned as far as it is known."""

    def __init__(self, promise: str, message: str, task: int = 0, job: int = 0) -> None:
        super().__init__(f"{promise}: {message}")
        self.promise = promise
        self.message = message
        self.task = task
        self.job = job


class VirtualWorld:
    """True time, the entries still to come, and the digest of those that came."""

    __slots__ = ("_hash", "_hashed", "happened", "heap", "next_number", "now", "story", "trace")

    def __init__(self, story: "Story | None" = None) -> None:
        self.now = 0
        """True time in microseconds. Machines never see it."""
        self.heap: list[Entry] = []
        self.happened = 0
        """Entries that have come due: events of machines, and everything outside them, such as a completed
        write, the end of a task, a client's timeout, a fault, or a message to a process that is down."""
        self.trace: list[int] = []
        """``TRACE_WIDTH`` numbers per event that are not hashed yet."""
        self.story = story
        """Recorder for explanations; None costs next to nothing."""
        self.next_number = count().__next__
        """Function that returns the next number of a heap entry."""
        self._hash = sha256()
        self._hashed = 0

    def call_at(self, time: int, action: Action, payload: Any = None) -> None:
        """Call ``action(payload)`` at this true time; calls of one time happen in the order of scheduling."""
        heappush(self.heap, (time, self.next_number(), action, payload))

    def run(self, until: int) -> None:
        """Perform every entry that is due up to and including ``until``; the clock then shows that time."""
        heap, pop = self.heap, heappop
        heappush(heap, (until, LAST_NUMBER, _end_run, None))  # cheaper than looking at the next entry's time
        done = 0
        try:
            for first in count(0, ENTRIES_BETWEEN_FLUSH_CHECKS):
                if len(self.trace) >= TRACE_NUMBERS_MAX:
                    self._flush()
                for done in range(first, first + ENTRIES_BETWEEN_FLUSH_CHECKS):  # noqa: B007  for ``finally``
                    self.now, _, action, payload = pop(heap)
                    action(payload)
        except _EndOfRun:
            return
        finally:
            self.happened += done

    @property
    def event_count(self) -> int:
        """Number of events handed to machines."""
        return (self._hashed + len(self.trace)) // TRACE_WIDTH

    def digest(self, outcomes: list[int]) -> str:
        """Return the SHA-256 over every event so far, then over ``outcomes``, in hexadecimal."""
        self._flush()
        whole = self._hash.copy()
        whole.update(pack(f"<{len(outcomes)}q", *outcomes))
        return whole.hexdigest()

    def _flush(self) -> None:
        self._hash.update(pack(f"<{len(self.trace)}q", *self.trace))
        self._hashed += len(self.trace)
        self.trace.clear()


class _EndOfRun(Exception):  # noqa: N818  the normal end of a run, not an error
    """Exception of the last entry of a run; it saves a check at every other entry."""


def _end_run(_: Any) -> None:
    raise _EndOfRun
