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
    from hanse.sim.story import Story

Action = Callable[[Any], None]
Entry = tuple[int, int, Action, Any]

TRACE_WIDTH: Final = 4
"""Numbers kept of every event: true time, process and kind, and two that tell events of a kind apart."""
TRACE_NUMBERS_MAX: Final = 1 << 14
"""Numbers collected before they are hashed: looked at when so many may have come, not at every entry."""
SPAN: Final = TRACE_NUMBERS_MAX // TRACE_WIDTH
"""Entries between two such looks."""
LAST: Final = 1 << 62
"""A number that comes after every entry of its time."""


class Violation(Exception):  # noqa: N818  it is a finding, not an error of ours
    """A promise of the league was broken. Names the task, job or node concerned as far as it is known."""

    def __init__(self, promise: str, message: str, task: int = 0, job: int = 0) -> None:
        super().__init__(f"{promise}: {message}")
        self.promise = promise
        self.message = message
        self.task = task
        self.job = job


class World:
    """True time, what is still to happen, and the digest of what has."""

    __slots__ = ("_hash", "_hashed", "happened", "heap", "now", "number", "story", "trace")

    def __init__(self, story: "Story | None" = None) -> None:
        self.now = 0
        """True time in microseconds. No machine ever sees it."""
        self.heap: list[Entry] = []
        self.happened = 0
        """How many entries have come due: what machines were handed, and all that happens outside them, such
        as a write that comes back, the end of a task, a client's patience, a fault, a message to the dead."""
        self.trace: list[int] = []
        """``TRACE_WIDTH`` numbers an event, waiting to be hashed."""
        self.story = story
        """Takes notes when somebody wants an explanation; None costs next to nothing."""
        self.number = count().__next__
        """The next number for an entry of the heap."""
        self._hash = sha256()
        self._hashed = 0

    def at(self, time: int, action: Action, payload: Any = None) -> None:
        """Call ``action(payload)`` at this true time; at one time, in the order of these calls."""
        heappush(self.heap, (time, self.number(), action, payload))

    def run(self, until: int) -> None:
        """Let everything happen that is due up to and including ``until``; the clock then shows it."""
        heap, pop = self.heap, heappop
        heappush(heap, (until, LAST, _over, None))  # cheaper than looking at the next entry's time
        done = 0
        try:
            for first in count(0, SPAN):
                if len(self.trace) >= TRACE_NUMBERS_MAX:
                    self._flush()
                for done in range(first, first + SPAN):  # noqa: B007  for ``finally``
                    self.now, _, action, payload = pop(heap)
                    action(payload)
        except _RunOver:
            return
        finally:
            self.happened += done

    @property
    def events(self) -> int:
        """How many events were handed to machines."""
        return (self._hashed + len(self.trace)) // TRACE_WIDTH

    def digest(self, outcomes: list[int]) -> str:
        """SHA-256 over every event handed over so far, then over ``outcomes``, in hexadecimal."""
        self._flush()
        whole = self._hash.copy()
        whole.update(pack(f"<{len(outcomes)}q", *outcomes))
        return whole.hexdigest()

    def _flush(self) -> None:
        self._hash.update(pack(f"<{len(self.trace)}q", *self.trace))
        self._hashed += len(self.trace)
        self.trace.clear()


class _RunOver(Exception):  # noqa: N818  it is how a run ends, not an error
    """Raised by the last entry of a run: nothing need be asked of all the others."""


def _over(_: Any) -> None:
    raise _RunOver
