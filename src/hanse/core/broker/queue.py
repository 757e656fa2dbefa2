"""A broker's queue: waiting groups in lines of equal shape, each line in key order.

Tasks of one shape are interchangeable to a warden, so a line is what a broker registers as demand. Inside a
line the smallest key goes first; equal keys by job number, then group. Entries are dropped lazily: one that
is out of date is skipped when it reaches the head.
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
"""Out-of-date entries that a line may hold beyond its live ones before it is swept."""
Heads = list[tuple[QueueKey, int, JobRecord, int]]
"""The best waiting group of every line that has one: key, line, job, group; best key first, then by line."""


class QueueLine(msgspec.Struct, gc=False):
    """Waiting tasks of one shape."""

    number: int
    shape: Shape
    users: int = 0
    """Groups of live jobs that have this shape; a line without any is forgotten and its number used again."""
    count: int = 0
    """Tasks waiting; gangs count as one each."""


class BrokerQueue:
    """All lines of one broker."""

    def __init__(self) -> None:
        self.lines: dict[int, QueueLine] = {}
        self._numbers: dict[Shape, int] = {}
        self.free: list[int] = []
        self._heaps: dict[int, list[tuple[QueueKey, JobId, int]]] = {}
        self._heads: Heads | None = None
        """The heads of all lines; None: a line has come, gone or changed since they were looked up."""

    def join(self, shape: Shape) -> int:
        """The number of a shape's line, counting one more user."""
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
        """One user less."""
        line = self.lines[number]
        line.users -= 1
        if not line.users:
            assert not line.count, f"line {number} has waiting tasks and no users"
            del self.lines[number], self._numbers[line.shape], self._heaps[number]
            self.free.append(number)
            self._heads = None

    def add(self, line: QueueLine, count: int) -> None:
        """So many more tasks wait in a line, or fewer."""
        line.count += count
        self._heads = None

    def push(self, jobs: dict[JobId, JobRecord], record: JobRecord, group: int, key: QueueKey) -> None:
        """A group has waiting tasks, or its key has changed."""
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
        """The best waiting group of a line."""
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
        """The best waiting group of every line. As long as nothing has changed it is the same list, which
        nobody else may change."""
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
        """What is not as it should be when no work is left."""
        return [f"line {n} has {line.count} waiting" for n, line in self.lines.items() if line.count]

    def has_waiting(self) -> bool:
        """Whether anything waits."""
        if self._heads is not None:
            return bool(self._heads)
        for line in self.lines.values():  # noqa: SIM110  with every beat: any() costs more than it looks at
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
        """The heads that are remembered are those that would be found."""
        if self._heads is not None:
            places = [
                (key, number, record.id, group) for key, number, record, group in self._find_heads(jobs)
            ]
            known = [(key, number, record.id, group) for key, number, record, group in self._heads]
            assert known == places, "other groups are the best ones"

    def check_counts(self, jobs: dict[JobId, JobRecord]) -> None:
        """Every line counts what waits in it."""
        counts: dict[int, int] = {}
        for record in jobs.values():
            for group, waiting in enumerate(record.waiting):
                number = record.lines[group]
                if waiting and number >= 0:
                    counts[number] = counts.get(number, 0) + (1 if record.spec.gang else len(waiting))
        for number, line in self.lines.items():
            assert line.count == counts.get(number, 0), f"line {number} counts {line.count}"


def _is_current(jobs: dict[JobId, JobRecord], number: int, entry: tuple[QueueKey, JobId, int]) -> bool:
    """Whether an entry still says where a waiting group stands."""
    key, job, group = entry
    record = jobs.get(job)
    return (
        record is not None
        and record.keys[group] == key
        and record.lines[group] == number
        and bool(record.waiting[group])
    )
