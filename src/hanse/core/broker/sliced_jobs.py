"""Queueing and cancellation of large jobs in slices, so that no event runs a long loop.

The event that cancels a job ends all tasks of a small one. It marks a large one, takes it out of the queue
and withdraws its attempts; waiting tasks end in slices, with a pause after each. The job itself shows what is
left (cancelled, with waiting tasks), so nothing more is dumped, and a standby that takes the job over
continues where its copy stands. The same holds for a large job that is accepted or taken over: its first
tasks are queued at once, the rest in slices, and blocked tasks with met needs are what is left.
"""

from collections.abc import Callable, Iterator
from typing import Final

from hanse.core.broker.failover.end_log import EndLog
from hanse.core.broker.job_table import BLOCKED, WAITING, JobRecord, has_failed, is_unqueued, spans_of
from hanse.core.messaging.link import NEVER
from hanse.model.ids import MILLISECOND, JobId

SLICE_PAUSE: Final = 20 * MILLISECOND
"""Time between two slices, for all other work."""
QUEUED_PER_ENDED: Final = 64
"""Tasks that are queued in the time that ending one task takes."""
SCAN_TASKS: Final = 8_192
"""Tasks that are examined together in the search for waiting tasks."""

_IS_WAITING: Final = bytes(value in (BLOCKED, WAITING) for value in range(256))


class SlicedJobs:
    """Large jobs of one broker that are being cancelled or queued."""

    def __init__(
        self, jobs: dict[JobId, JobRecord], end_log: EndLog, settle: Callable[[JobRecord, int, int], bool],
        release: Callable[[JobRecord], None], most: int,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._end_log = end_log
        self._settle = settle
        self._release = release
        self.queued_most = QUEUED_PER_ENDED * most
        """Tasks that one event queues."""
        self.unqueued: dict[JobId, None] = {}
        """Jobs with tasks to be queued. The lowest number goes first."""
        self.slice_tasks = most
        """Tasks in a slice; a job with at most this many tasks left is ended at once."""
        self.unfinished: dict[JobId, None] = {}
        """Jobs with waiting tasks to be ended. The lowest number goes first."""
        self.due = NEVER
        """Time of the next slice."""

    def begin(self, now: int, record: JobRecord) -> None:
        """End a job's waiting tasks: the first slice at once, the rest later. First tell the standby that the
        job is cancelled, because it may take the job over in between."""
        self._end_log.add_cancellation(record)
        if has_waiting_tasks(record):  # else all its tasks are with wardens
            self.unfinished[record.id] = None
            self.step(now)

    def end_later(self, now: int, record: JobRecord) -> None:
        """Schedule the end, in slices, of tasks that can never run because something they need has failed.
        The rest of the job continues."""
        self.unfinished[record.id] = None
        if self.due == NEVER:
            self.due = now + SLICE_PAUSE

    def queue_later(self, now: int, record: JobRecord) -> None:
        """Schedule the tasks of a job beyond what one event queues."""
        self.unqueued[record.id] = None
        if self.due == NEVER:
            self.due = now + SLICE_PAUSE

    def step(self, now: int) -> None:
        """End one slice, and queue one."""
        self.due = NEVER
        if self.unfinished:
            self._end_slice()
        if self.unqueued:
            job = min(self.unqueued)
            del self.unqueued[job]
            self._release(self._jobs[job])  # this may schedule the job again
        self.due = now + SLICE_PAUSE if self.unfinished or self.unqueued else NEVER

    def _end_slice(self) -> None:
        job = min(self.unfinished)
        record = self._jobs[job]
        if not self._end_log.has_backlog(record):
            self.end(record, self.slice_tasks)
            if not has_waiting_tasks(record):  # the last slice may have been full
                self.drop(job)

    def end(self, record: JobRecord, most: int) -> None:
        """End at most ``most`` of the tasks that are in no queue and can never run."""
        for first, behind in _unrunnable_spans(record):
            for at, count in find_stretches(record.state, most, first, behind):
                most -= count
                if self._settle(record, at, count):
                    return  # the whole job has ended and was removed

    def drop(self, job: JobId) -> None:
        """Remove a job that has ended or belongs to another broker."""
        self.unfinished.pop(job, None)
        self.stop_queueing(job)

    def stop_queueing(self, job: JobId) -> None:
        """Stop queueing tasks of a job."""
        self.unqueued.pop(job, None)
        if not self.unfinished and not self.unqueued:
            self.due = NEVER

    def restore(self, jobs: dict[JobId, JobRecord], due: int) -> None:
        """Find the unfinished work in the restored jobs."""
        self._jobs = jobs
        self.unfinished = _find_unfinished(jobs)
        self.unqueued = _find_unqueued(jobs)
        self.due = due

    def check(self) -> None:
        """Assert that exactly the jobs with work left are marked."""
        assert self.unfinished.keys() == _find_unfinished(self._jobs).keys(), (
            "unfinished jobs are not those with waiting tasks to end"
        )
        assert self.unqueued.keys() == _find_unqueued(self._jobs).keys(), "unqueued tasks are forgotten"
        assert (self.due < NEVER) == bool(self.unfinished or self.unqueued)


def _find_unqueued(jobs: dict[JobId, JobRecord]) -> dict[JobId, None]:
    """Return the jobs with tasks to be queued."""
    return {job: None for job, record in jobs.items() if is_unqueued(record)}


def _find_unfinished(jobs: dict[JobId, JobRecord]) -> dict[JobId, None]:
    """Return the jobs with waiting tasks that can never run."""
    return {job: None for job, record in jobs.items() if has_waiting_tasks(record)}


def has_waiting_tasks(record: JobRecord) -> bool:
    """True if a job has waiting tasks that can never run: it is cancelled, or something that they need has
    failed."""
    return any(
        _first_waiting(record.state, first, behind) >= 0 for first, behind in _unrunnable_spans(record)
    )


def _unrunnable_spans(record: JobRecord) -> Iterator[tuple[int, int]]:
    """Yield spans of tasks that can never run if they wait: the first, the one behind the last. A cancelled
    job has one per group; otherwise one per group that needs a group with a failed or cancelled task."""
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
    """Return the first waiting task; -1: none. The search is that of bytearray, as in ``find_tasks``."""
    queued = states.find(WAITING, first, behind)
    blocked = states.find(BLOCKED, first, behind if queued < 0 else queued)
    return queued if blocked < 0 else blocked


def find_stretches(
    states: bytearray, most: int, first: int = 0, behind: int | None = None
) -> list[tuple[int, int]]:
    """Return the first ``most`` waiting tasks as stretches of neighbours: start and count. This takes as many
    steps as there are stretches, not tasks."""
    behind = len(states) if behind is None else behind
    base, found = _first_waiting(states, first, behind), list[tuple[int, int]]()
    while most and 0 <= base < behind:
        block = bytes(states[base : min(base + SCAN_TASKS, behind)]).translate(_IS_WAITING)
        at = block.find(1)
        while at >= 0 and most:
            stop = block.find(0, at)
            count = min((len(block) if stop < 0 else stop) - at, most)
            found.append((base + at, count))
            most -= count
            at = block.find(1, at + count)
        base += len(block)
    return found


def find_tasks(states: bytearray, kinds: tuple[int, ...], most: int) -> list[int]:
    """Return the first ``most`` tasks in one of these states, by index. The search is that of bytearray: a
    look at each of a million tasks would take longer than an event may."""
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
