"""Jobs with so many tasks that they are queued, and ended, in slices: no event may keep a loop for long.

A job with few tasks is ended by the event that cancels it. A large one is marked, taken out of the queue and
withdrawn from its wardens by that event; its tasks that wait are ended in slices, one after each pause. Which
are left to be ended shows in the job itself (cancelled, with tasks that wait), so nothing more is dumped, and
a standby that adopts the job goes on where its copy stands. The same holds for a large job that is accepted
or adopted: its first tasks are queued at once, the others by and by, and what is blocked by nothing is left.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from hanse.core.broker.job_table import BLOCKED, WAITING, JobRecord, has_failed, is_unqueued, spans_of
from hanse.core.messaging.link import NEVER
from hanse.model.ids import MILLISECOND, JobId
from hanse.model.messages import Outcome

SLICE_PAUSE: Final = 20 * MILLISECOND
"""Between two slices: the time belongs to everybody else."""
QUEUED_EACH: Final = 64
"""How many tasks are queued in the time that it takes to end one."""
LOOKED_AT: Final = 8_192
"""Tasks that are looked at together when some are looked for that wait."""

_WAITS: Final = bytes(value in (BLOCKED, WAITING) for value in range(256))


class EndedJob(msgspec.Struct, gc=False, rename={"is_published": "known"}):
    """A job that is over."""

    outcome: Outcome
    client_id: str
    is_published: bool = False
    """Whether it has been made known; before that a standby could still decide otherwise."""


class LargeCancellations:
    """The large jobs of one broker that are being cancelled, or queued."""

    def __init__(
        self, jobs: dict[JobId, JobRecord], settle: Callable[[JobRecord, int, int], bool],
        release: Callable[[JobRecord], None], most: int,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._settle = settle
        self._release = release
        self.queued_most = QUEUED_EACH * most
        """Tasks that one event queues."""
        self.unqueued: dict[JobId, None] = {}
        """Jobs with tasks that are to be queued. The lowest number goes first, as below."""
        self.most = most
        """Tasks in a slice; a job with as many or fewer left is ended at once."""
        self.on_begun: Callable[[JobRecord], None] = lambda _: None
        """Called with a job that will take several slices."""
        self.is_held: Callable[[JobRecord], bool] = lambda _: False
        """Whether so much of a job's shard waits to be made known that no more may end for now."""
        self.unfinished: dict[JobId, None] = {}
        """Those of which tasks wait to be ended. The lowest number goes first, whatever their order here."""
        self.due = NEVER
        """When the next slice is."""

    def begin(self, now: int, record: JobRecord) -> None:
        """End a job's waiting tasks: the first slice at once, the others by and by. Whoever inherits the job
        in between must know that it is to end."""
        self.on_begun(record)
        if has_waiting_tasks(record):  # else all its tasks are with wardens
            self.unfinished[record.id] = None
            self.step(now)

    def spoil(self, now: int, record: JobRecord) -> None:
        """So much of a job can never run, because something that it needs has failed, that it is ended by and
        by. The rest of the job goes on."""
        self.unfinished[record.id] = None
        if self.due == NEVER:
            self.due = now + SLICE_PAUSE

    def queue_later(self, now: int, record: JobRecord) -> None:
        """More of a job than one event queues is to be queued."""
        self.unqueued[record.id] = None
        if self.due == NEVER:
            self.due = now + SLICE_PAUSE

    def step(self, now: int) -> None:
        """End one slice, and queue one."""
        self.due = NEVER
        if self.unfinished:
            self._end()
        if self.unqueued:
            job = min(self.unqueued)
            del self.unqueued[job]
            self._release(self._jobs[job])  # which may leave some for later again
        self.due = now + SLICE_PAUSE if self.unfinished or self.unqueued else NEVER

    def _end(self) -> None:
        job = min(self.unfinished)
        record = self._jobs[job]
        if not self.is_held(record):
            self.end(record, self.most)
            if not has_waiting_tasks(record):  # the last slice may have been a whole one
                self.drop(job)

    def end(self, record: JobRecord, most: int) -> None:
        """End so many of the tasks that wait in no queue and can never run."""
        for first, behind in _doomed(record):
            for at, count in find_stretches(record.state, most, first, behind):
                most -= count
                if self._settle(record, at, count):
                    return  # all of it is over, and it is ours no longer

    def drop(self, job: JobId) -> None:
        """A job has ended, or is somebody else's."""
        self.unfinished.pop(job, None)
        self.keep_out(job)

    def keep_out(self, job: JobId) -> None:
        """Nothing more of a job is to be queued."""
        self.unqueued.pop(job, None)
        if not self.unfinished and not self.unqueued:
            self.due = NEVER

    def restore(self, jobs: dict[JobId, JobRecord], due: int) -> None:
        """Find what was being ended."""
        self._jobs = jobs
        self.unfinished = _find_unfinished(jobs)
        self.unqueued = _find_unqueued(jobs)
        self.due = due

    def check(self) -> None:
        """Whether exactly those are marked of which something is left to do."""
        assert self.unfinished.keys() == _find_unfinished(self._jobs).keys(), (
            "a cancelled job waits for nobody"
        )
        assert self.unqueued.keys() == _find_unqueued(self._jobs).keys(), "tasks are blocked by nothing"
        assert (self.due < NEVER) == bool(self.unfinished or self.unqueued)


def _find_unqueued(jobs: dict[JobId, JobRecord]) -> dict[JobId, None]:
    """Jobs with tasks that are to be queued."""
    return {job: None for job, record in jobs.items() if is_unqueued(record)}


def _find_unfinished(jobs: dict[JobId, JobRecord]) -> dict[JobId, None]:
    """Jobs with tasks that wait and can never run."""
    return {job: None for job, record in jobs.items() if has_waiting_tasks(record)}


def has_waiting_tasks(record: JobRecord) -> bool:
    """Whether a job has tasks that wait and can never run: it is cancelled, or something that they need has
    failed."""
    return any(_first_waiting(record.state, first, behind) >= 0 for first, behind in _doomed(record))


def _doomed(record: JobRecord) -> Iterator[tuple[int, int]]:
    """Where the tasks of a job are that can never run if they wait: the first, the one behind the last. The
    parts of a cancelled job are its groups; else those that need one of which some task did not succeed."""
    groups = record.spec.groups
    if len(groups) == 1:
        if record.cancelled:
            yield 0, len(record.state)
        return
    spans = spans_of(record.spec)
    for group in groups:
        if record.cancelled or any(has_failed(record.state, *spans[need]) for need in group.needs):
            yield spans[group.name]


def _first_waiting(states: bytearray, first: int, behind: int) -> int:
    """The first task that waits; -1: none. The search is the bytearray's own, as in ``find_tasks``."""
    queued = states.find(WAITING, first, behind)
    blocked = states.find(BLOCKED, first, behind if queued < 0 else queued)
    return queued if blocked < 0 else blocked


def find_stretches(
    states: bytearray, most: int, first: int = 0, behind: int | None = None
) -> list[tuple[int, int]]:
    """The first ``most`` tasks that wait, as stretches of neighbours: where each begins, and how many. As
    many steps as there are stretches, and not as there are tasks."""
    behind = len(states) if behind is None else behind
    base, found = _first_waiting(states, first, behind), list[tuple[int, int]]()
    while most and 0 <= base < behind:
        block = bytes(states[base : min(base + LOOKED_AT, behind)]).translate(_WAITS)
        at = block.find(1)
        while at >= 0 and most:
            behind = block.find(0, at)
            count = min((len(block) if behind < 0 else behind) - at, most)
            found.append((base + at, count))
            most -= count
            at = block.find(1, at + count)
        base += len(block)
    return found


def find_tasks(states: bytearray, kinds: tuple[int, ...], most: int) -> list[int]:
    """The first ``most`` tasks in one of these states, by index. The search is the bytearray's own: a look at
    each of a million tasks would take longer than an event may."""
    found: list[int] = []
    heads = {kind: states.find(kind) for kind in kinds}
    while len(found) < most:
        live = [(at, kind) for kind, at in heads.items() if at >= 0]
        if not live:
            break
        at, kind = min(live)
        stop = min([other for other, _ in live if other > at], default=len(states))
        while 0 <= at < stop and len(found) < most:
            found.append(at)
            at = states.find(kind, at + 1)
        heads[kind] = at
    return found
