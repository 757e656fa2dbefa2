"""Calls, and the crew of hands that makes them: who gets which call when. No sockets, no clock of its own.

Small calls travel in batches, as many ahead as a hand makes in ``WINDOW_SECONDS``; long ones singly. A hand
that has nothing to do gets calls that wait behind others. When a hand is lost, the calls that it had are made
again elsewhere; since any of them may have been what ended it, each is then sent by itself, so that only the
one that is to blame uses up its retries. A call without retries is always sent by itself: it is made once or
not at all.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from hanse.sdk.function_pickling import Traveller
from hanse.sdk.future import Future
from hanse.sdk.serialization import Packed

WINDOW_SECONDS: Final = 0.02
"""So much work is sent ahead to a hand."""
LONG_SECONDS: Final = 0.05
"""Calls that take longer are not sent ahead at all: the way to a hand costs nothing beside them."""
CREDIT_FIRST: Final = 4
"""Calls that a hand gets before it is known how long they take."""
CREDIT_MAX: Final = 2_048
WINDOW_BYTES: Final = 32 << 20
"""Results that may be under way from one hand, by the size of those that came."""
STALE_SECONDS: Final = 0.005
"""A hand that finishes nothing for this long is busy with something long."""
SMOOTHING: Final = 0.3
"""Weight of the newest figure in a running mean."""
SAMPLES_MAX: Final = 64
"""Durations kept of each function."""


class Call:
    """One call on its way."""

    __slots__ = (
        "alone",
        "begun",
        "cancelled",
        "function",
        "future",
        "inputs",
        "named",
        "number",
        "packed",
        "retries",
    )

    def __init__(
        self, number: int, function: Traveller, packed: Packed, future: Future[Any], retries: int
    ) -> None:
        self.number = number
        self.function = function
        self.packed = packed
        self.future = future
        self.retries = retries
        """How often it may still be made again after its hand was lost."""
        self.begun = False
        """Whether a hand has it, or had it."""
        self.inputs: tuple[tuple[int, Packed], ...] = ()
        """Results of other calls that the hand reads from the spool."""
        self.alone = retries == 0
        """Whether it must not share a hand: it may be made only once, or a hand was lost with it."""
        self.named = False
        """Whether its function went to the hand by name."""
        self.cancelled = False
        """Whether it is to be cancelled if it comes back."""


class Member:
    """A hand as the crew sees it."""

    __slots__ = (
        "attempt", "closing", "cluster", "credit", "idle_since", "index", "job", "link", "mean", "mean_bytes",
        "outstanding", "progressed", "recalling",
    )  # fmt: skip

    def __init__(self, job: str, index: int, attempt: int, cluster: str, link: Any, now: float) -> None:
        self.job = job
        self.index = index
        self.attempt = attempt
        self.cluster = cluster
        self.link = link
        """The connection; opaque here."""
        self.outstanding: dict[int, Call] = {}
        """Calls that it has, in the order in which it makes them."""
        self.mean: float | None = None
        """Seconds that its calls take; None: none has ended."""
        self.mean_bytes = 0.0
        self.credit = CREDIT_FIRST
        self.idle_since = now
        self.progressed = now
        """When it last finished something, or was given something while it was idle."""
        self.recalling = False
        """Whether calls were asked back and it has not answered."""
        self.closing = False

    @property
    def task(self) -> str:
        """As people write it."""
        return f"{self.job}.{self.index}"

    def finished(self, count: int, seconds: float, size: int, now: float) -> None:
        """Some calls have ended: learn how long such calls take here."""
        mean = seconds / count
        self.mean = mean if self.mean is None else (1 - SMOOTHING) * self.mean + SMOOTHING * mean
        self.mean_bytes = (1 - SMOOTHING) * self.mean_bytes + SMOOTHING * size / count
        self.progressed = now
        if not self.outstanding:
            self.idle_since = now
        if self.mean > LONG_SECONDS:
            self.credit = 1
            return
        by_time = int(WINDOW_SECONDS / max(self.mean, 1e-6))
        by_bytes = int(WINDOW_BYTES / max(self.mean_bytes, 1.0))
        self.credit = max(2, min(by_time, by_bytes, CREDIT_MAX))


class Crew:
    """The hands of an executor and the calls that wait for them. For one thread."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        """In the order in which they came."""
        self._waiting: deque[Call] = deque()
        self._alone: deque[Call] = deque()
        """Calls that must be sent by themselves; they go first."""

    def __len__(self) -> int:
        """Calls that no hand has."""
        return len(self._waiting) + len(self._alone)

    def waiting(self) -> Iterator[Call]:
        """The calls that no hand has, the next one first."""
        yield from self._alone
        yield from self._waiting

    def add(self, call: Call) -> None:
        """A new call, behind the others."""
        (self._alone if call.alone else self._waiting).append(call)

    def put_back(self, calls: list[Call]) -> None:
        """Calls that a hand did not make: before the others, in their order."""
        for call in reversed(calls):
            (self._alone if call.alone else self._waiting).appendleft(call)

    def clear(self) -> list[Call]:
        """Take away all that waits."""
        calls = list(self.waiting())
        self._alone.clear()
        self._waiting.clear()
        return calls

    def pending(self) -> int:
        """Calls that have not ended."""
        return len(self) + sum(len(member.outstanding) for member in self.members)

    def work_seconds(self, unknown: float) -> float:
        """How long the waiting calls take one hand; ``unknown``: what to think of calls never timed."""
        means = [member.mean for member in self.members if member.mean is not None]
        return len(self) * (sum(means) / len(means) if means else unknown)

    # --- giving calls out

    def assign(self, now: float) -> list[tuple[Member, list[Call]]]:
        """Which calls go to which hand now. Ties between hands: the one that came first."""
        given: list[tuple[Member, list[Call]]] = []
        if not self._waiting and not self._alone:
            return given
        for member in self.members:
            if not self._alone:
                break
            if not member.outstanding and not member.closing:
                calls = self._take(self._alone, 1)
                self._give(member, calls, now, given)
        free = [member for member in self.members if self._room(member, now) > 0]
        free.sort(key=lambda member: len(member.outstanding))
        for place, member in enumerate(free):
            if not self._waiting:
                break
            share = -(-len(self._waiting) // (len(free) - place))
            calls = self._take(self._waiting, min(share, self._room(member, now)))
            self._give(member, calls, now, given)
        return given

    def _room(self, member: Member, now: float) -> int:
        """How many calls it may get besides those that it has: none behind something long."""
        held = member.outstanding
        if member.closing or (held and next(iter(held.values())).alone):
            return 0
        if held and (member.recalling or now - member.progressed >= STALE_SECONDS):
            return 0
        return member.credit - len(held)

    def _take(self, source: deque[Call], count: int) -> list[Call]:
        """The next calls that nobody has cancelled."""
        calls: list[Call] = []
        while source and len(calls) < count:
            call = source.popleft()
            if call.cancelled:
                call.future._withdrawn()
            elif call.begun or call.future._begin():
                call.begun = True
                calls.append(call)
        return calls

    def _give(
        self, member: Member, calls: list[Call], now: float, given: list[tuple[Member, list[Call]]]
    ) -> None:
        if not calls:
            return
        if not member.outstanding:
            member.progressed = now
        cluster, task = member.cluster, member.task
        for call in calls:
            member.outstanding[call.number] = call
            call.future._cluster = cluster
            call.future._task = task
        given.append((member, calls))

    def steals(self, now: float) -> tuple[list[tuple[Member, int]], float | None]:
        """Hands from which calls should be asked back because others are idle, and how many of each.

        Second: after how many seconds to look again, if a hand may turn out to be busy with something long.
        """
        if len(self) or not any(not member.outstanding and not member.closing for member in self.members):
            return [], None
        asked: list[tuple[Member, int]] = []
        again: float | None = None
        for member in self.members:
            held = len(member.outstanding)
            if held < 2 or member.recalling or member.closing:
                continue
            stale = now - member.progressed
            if stale >= STALE_SECONDS or (member.mean or 0.0) * held >= STALE_SECONDS:
                member.recalling = True
                asked.append((member, held // 2 if stale < STALE_SECONDS else held - 1))
            else:
                left = STALE_SECONDS - stale
                again = left if again is None else min(again, left)
        return asked, again

    # --- what hands say

    def returned(self, member: Member, numbers: tuple[int, ...]) -> list[Call]:
        """Calls come back that had not begun; those of them that are to be cancelled."""
        member.recalling = False
        calls = [member.outstanding.pop(number) for number in numbers if number in member.outstanding]
        calls.sort(key=lambda call: call.number)
        cancelled = [call for call in calls if call.cancelled]
        kept = [call for call in calls if not call.cancelled]
        self.put_back(kept)
        return cancelled

    def lost(self, member: Member) -> list[Call]:
        """A hand is gone; the calls that may not be made again. The others wait for another hand."""
        self.members.remove(member)
        calls = list(member.outstanding.values())
        member.outstanding = {}
        blamed = len(calls) == 1
        again: list[Call] = []
        over: list[Call] = []
        for call in calls:
            if blamed:
                call.retries -= 1
            (over if call.retries < 0 else again).append(call)
            call.alone = True
        self.put_back(again)
        return over
