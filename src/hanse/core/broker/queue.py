"""Queue of a broker: waiting groups in lines of equal shape, each line in key order.

Tasks of one shape are interchangeable to a warden, so a broker registers lines as demand. In a line the
smallest key goes first; equal keys are ordered by job number, then group. Obsolete entries are removed
lazily, when they reach the head.
"""

from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Final

import msgspec

from hanse.core.broker.job_table import JobRecord
from hanse.model.ids import JobId
from hanse.model.messages import QueueKey, Shape

_by_key = itemgetter(0, 1)
STALE_MAX: Final = 64
"""Obsolete entries that a line may hold beyond its live ones before it is cleaned."""
Heads = list[tuple[QueueKey, int, JobRecord, int]]
"""Best waiting group of every line that has one: key, line, job, group; best key first, then by line."""


class QueueLine(msgspec.Struct, gc=False):
    """Waiting tasks of one shape."""

    number: int
    shape: Shape
    users: int = 0
    """Groups of live jobs with this shape; a line without users is removed and its number is reused."""
    count: int = 0
    """Waiting tasks; a gang counts as one."""


class BrokerQueue:
    """All lines of one broker."""

    def __init__(self) -> None:
        self.lines: dict[int, QueueLine] = {}
        self._numbers: dict[Shape, int] = {}
        self.free: list[int] = []
        self._heaps: dict[int, list[tuple[QueueKey, JobId, int]]] = {}
        self._heads: Heads | None = None
        """Cached heads of all lines; None: a line has changed since."""

    def join(self, shape: Shape) -> int:
        """Return the number of a shape's line, and count one more user."""
        number = self._numbers.get(shape)
        if number is None:
            number = self.free.pop() if self.free else len(self.lines)
            self._numbers[shape] = number
            self.lines[number] = QueueLine(number, shape)
            self._heaps[number] = []
            self._heads = None
        self.lines[number].users += 1
        return number

    def leave(self, number: int) -> None:
        """Count one user less; remove the line after the last one."""
        line = self.lines[number]
        line.users -= 1
        if not line.users:
            assert not line.count, f"line {number} has waiting tasks and no users"
            del self.lines[number], self._numbers[line.shape], self._heaps[number]
            self.free.append(number)
            self._heads = None

    def add(self, line: QueueLine, count: int) -> None:
        """Add ``count`` waiting tasks to a line; negative to remove."""
        line.count += count
        self._heads = None

    def push(self, jobs: dict[JobId, JobRecord], record: JobRecord, group: int, key: QueueKey) -> None:
        """Add an entry for a group with new waiting tasks, or with a new key."""
        number = record.lines[group]
        record.keys[group] = key
        self._heads = None
        heap = self._heaps[number]
        heappush(heap, (key, record.id, group))
        if len(heap) > 2 * self.lines[number].count + STALE_MAX:
            live = [entry for entry in dict.fromkeys(heap) if _is_current(jobs, number, entry)]
            heapify(live)
            self._heaps[number] = live

    def head(self, number: int, jobs: dict[JobId, JobRecord]) -> tuple[QueueKey, JobRecord, int] | None:
        """Return the best waiting group of a line."""
        heap = self._heaps[number]
        if not self.lines[number].count:
            heap.clear()
            return None
        while heap:
            key, job, group = heap[0]
            record = jobs.get(job)
            if (
                record is not None
                and record.waiting[group]
                and record.keys[group] == key
                and record.lines[group] == number
            ):
                return key, record, group
            heappop(heap)
        return None

    def heads(self, jobs: dict[JobId, JobRecord]) -> Heads:
        """Return the best waiting group of every line. While nothing changes this is the same list, which
        callers must not modify."""
        if self._heads is None:
            self._heads = self._find_heads(jobs)
        return self._heads

    def _find_heads(self, jobs: dict[JobId, JobRecord]) -> Heads:
        found = []
        for number, line in self.lines.items():
            if line.count:
                head = self.head(number, jobs)
                if head is not None:
                    found.append((head[0], number, head[1], head[2]))
        if len(found) > 1:
            found.sort(key=_by_key)
        return found

    def find_leftovers(self) -> list[str]:
        """List what should not exist when no work is left."""
        return [f"line {n} has {line.count} waiting" for n, line in self.lines.items() if line.count]

    def has_waiting(self) -> bool:
        """True if a task waits."""
        if self._heads is not None:
            return bool(self._heads)
        for line in self.lines.values():  # noqa: SIM110  with every heartbeat: any() is slower
            if line.count:
                return True
        return False

    def restore(self, lines: dict[int, QueueLine], free: list[int], jobs: dict[JobId, JobRecord]) -> None:
        """Rebuild the heaps from the jobs."""
        self.lines, self.free = lines, free
        self._numbers = {line.shape: line.number for line in lines.values()}
        self._heaps = {number: [] for number in lines}
        for record in jobs.values():
            for group, waiting in enumerate(record.waiting):
                if waiting and record.lines[group] >= 0:
                    self._heaps[record.lines[group]].append((record.keys[group], record.id, group))
        for heap in self._heaps.values():
            heapify(heap)
        self._heads = None

    def check(self, jobs: dict[JobId, JobRecord]) -> None:
        """Assert that the cached heads are the current ones."""
        if self._heads is not None:
            places = [
                (key, number, record.id, group) for key, number, record, group in self._find_heads(jobs)
            ]
            known = [(key, number, record.id, group) for key, number, record, group in self._heads]
            assert known == places, "the cached heads are obsolete"

    def check_counts(self, jobs: dict[JobId, JobRecord]) -> None:
        """Assert that every line counts its waiting tasks."""
        counts: dict[int, int] = {}
        for record in jobs.values():
            for group, waiting in enumerate(record.waiting):
                number = record.lines[group]
                if waiting and number >= 0:
                    counts[number] = counts.get(number, 0) + (1 if record.spec.gang else len(waiting))
        for number, line in self.lines.items():
            assert line.count == counts.get(number, 0), f"line {number} counts {line.count}"


def _is_current(jobs: dict[JobId, JobRecord], number: int, entry: tuple[QueueKey, JobId, int]) -> bool:
    """True if an entry still describes a waiting group."""
    key, job, group = entry
    record = jobs.get(job)
    return (
        record is not None
        and record.keys[group] == key
        and record.lines[group] == number
        and bool(record.waiting[group])
    )
