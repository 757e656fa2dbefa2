"""Pool of workers and the calls for them: it decides which worker gets which call. No sockets, no clock.

Small calls go in batches, as many as a worker makes in ``WINDOW_SECONDS``; long calls go one by one. An idle
worker gets calls that wait behind others. When a worker is lost, its calls are repeated in other workers. Any
of them may have caused the loss, so each is then sent alone, and only the call that causes a loss uses up its
retries. A call without retries is always sent alone: it runs at most once.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from hanse.sdk.function_pickling import Traveller
from hanse.sdk.future import Future
from hanse.sdk.serialization import Packed

WINDOW_SECONDS: Final = 0.02
"""Seconds of work that are sent ahead to a worker."""
LONG_SECONDS: Final = 0.05
"""Duration above which calls are not sent ahead: the round trip does not matter for them."""
CREDIT_FIRST: Final = 4
"""Calls that a worker gets before the duration of its calls is known."""
CREDIT_MAX: Final = 2_048
WINDOW_BYTES: Final = 32 << 20
"""Bytes of results that may be under way from one worker, estimated from earlier results."""
STALE_SECONDS: Final = 0.005
"""Seconds without a result after which a worker counts as busy with a long call."""
SMOOTHING: Final = 0.3
"""Weight of the newest value in a running mean."""
SAMPLES_MAX: Final = 64
"""Durations kept of each function."""


class Call:
    """Call of a function in a worker."""

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
        """Repetitions that are left if the worker is lost."""
        self.begun = False
        """True if a worker has it, or had it."""
        self.inputs: tuple[tuple[int, Packed], ...] = ()
        """Results of other calls that the worker reads from the shared store."""
        self.alone = retries == 0
        """True if it must not share a worker: it may run only once, or a worker was lost with it."""
        self.named = False
        """True if its function went to the worker by name."""
        self.cancelled = False
        """True if it is to be cancelled when it comes back."""


class Member:
    """Worker as the pool sees it."""

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
        """Connection; opaque here."""
        self.outstanding: dict[int, Call] = {}
        """Calls that it has, in the order of execution."""
        self.mean: float | None = None
        """Mean seconds of its calls; None: none has ended."""
        self.mean_bytes = 0.0
        self.credit = CREDIT_FIRST
        self.idle_since = now
        self.progressed = now
        """Time when it last finished a call, or got one while it was idle."""
        self.recalling = False
        """True if calls were recalled and it has not answered."""
        self.closing = False

    @property
    def task(self) -> str:
        """Id of the worker's task, such as ``1-7.0``."""
        return f"{self.job}.{self.index}"

    def finished(self, count: int, seconds: float, size: int, now: float) -> None:
        """Update means and credit after some calls have ended."""
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
    """Workers of an executor and the calls that wait for them. For one thread."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        """Workers in the order in which they connected."""
        self._waiting: deque[Call] = deque()
        self._alone: deque[Call] = deque()
        """Calls that must be sent alone; they go first."""

    def __len__(self) -> int:
        """Number of calls that no worker has."""
        return len(self._waiting) + len(self._alone)

    def waiting(self) -> Iterator[Call]:
        """Yield the calls that no worker has, the next one first."""
        yield from self._alone
        yield from self._waiting

    def add(self, call: Call) -> None:
        """Add a new call behind the others."""
        (self._alone if call.alone else self._waiting).append(call)

    def put_back(self, calls: list[Call]) -> None:
        """Put calls that a worker did not make before the others, in their order."""
        for call in reversed(calls):
            (self._alone if call.alone else self._waiting).appendleft(call)

    def clear(self) -> list[Call]:
        """Remove and return all waiting calls."""
        calls = list(self.waiting())
        self._alone.clear()
        self._waiting.clear()
        return calls

    def pending(self) -> int:
        """Return the number of calls that have not ended."""
        return len(self) + sum(len(member.outstanding) for member in self.members)

    def work_seconds(self, unknown: float) -> float:
        """Estimate how long one worker needs for the waiting calls; ``unknown``: for a call never timed."""
        means = [member.mean for member in self.members if member.mean is not None]
        return len(self) * (sum(means) / len(means) if means else unknown)

    # --- assigning calls

    def assign(self, now: float) -> list[tuple[Member, list[Call]]]:
        """Assign waiting calls to workers. Ties between workers: the one that connected first."""
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
        """Return how many further calls a worker may get: none behind a long call."""
        held = member.outstanding
        if member.closing or (held and next(iter(held.values())).alone):
            return 0
        if held and (member.recalling or now - member.progressed >= STALE_SECONDS):
            return 0
        return member.credit - len(held)

    def _take(self, source: deque[Call], count: int) -> list[Call]:
        """Remove and return the next calls that are not cancelled."""
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
        """Return the workers from which to recall calls because others are idle, and how many of each.

        Second: seconds until the next check, if a worker may turn out to be busy with a long call.
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

    # --- answers of workers

    def returned(self, member: Member, numbers: tuple[int, ...]) -> list[Call]:
        """Take back calls that had not begun; return those that are to be cancelled."""
        member.recalling = False
        calls = [member.outstanding.pop(number) for number in numbers if number in member.outstanding]
        calls.sort(key=lambda call: call.number)
        cancelled = [call for call in calls if call.cancelled]
        kept = [call for call in calls if not call.cancelled]
        self.put_back(kept)
        return cancelled

    def lost(self, member: Member) -> list[Call]:
        """Remove a lost worker; return the calls that may not be repeated. The others wait for another
        worker."""
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
