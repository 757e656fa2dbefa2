"""One queue for all nodes: the oracle, with and without messages, and the same queue for each broker's
share.

``central`` is one broker for everything. It never errs, but it uses the network of all others: it launches a
task with two messages and hears of its end with one, so a node is idle for three between two tasks. The
independent simulator in ``docs/results/validation.md`` has the same three, to the last digit. ``ideal``
launches and hears without any message; only the minimum of three between a job's arrival and its start
remains. No scheduler can match it: it is a bound, and the reference for a queue order. ``independent`` is
``central`` once per broker, on fixed and equal shares of the nodes that no other broker may use.

Ends at one moment are served in the order of node numbers, before an arrival at that moment. Within a job,
tasks start in the order of the trace. A free node is taken last in, first out.
"""

from heapq import heappop, heappush, heapreplace
from time import perf_counter_ns
from typing import Final

import msgspec

from hanse.policy.queue_orders import FewestRemaining
from hanse.sim.baselines.task_level.job_ranks import static_rank
from hanse.sim.replay.run_records import Progress, ReplayOutcome, ReplaySettings, ReplayWorkload, make_outcome

FLOOR_MESSAGES: Final = 3
"""Messages between a job's arrival and its start, or the report of its end, when there is room."""
TASK_MESSAGES: Final = 3
"""Messages of a task: two launch it, one reports its end."""
NODE_BITS: Final = 20
NODE_MASK: Final = (1 << NODE_BITS) - 1
JOBS_PER_REPORT: Final = 256


class _Queue:
    """Queue for a set of nodes. An end is one integer, ``time << 20 | node``: it sorts without a tuple."""

    def __init__(self, workload: ReplayWorkload, nodes: range, turnaround: int) -> None:
        self.workload = workload
        self.free = list(reversed(nodes))
        self.turnaround = turnaround
        self.ends: list[int] = []
        self.runs: list[int] = [0] * nodes.stop
        """Job that each node runs."""
        self.waiting: list[int] = []
        self.next_task = workload.offset[:-1]
        self.past = workload.offset[1:]
        self.begun = 0

    def launch(self, now: int, job: int, start: list[int], place: list[int]) -> bool:
        """Start a job's tasks on the free nodes; return True if all of them have started."""
        free, ends, runs, duration = self.free, self.ends, self.runs, self.workload.duration
        first = self.next_task[job]
        last = min(self.past[job], first + len(free))
        later = now + self.turnaround
        for task in range(first, last):
            node = free.pop()
            start[task] = now
            place[task] = node
            runs[node] = job
            heappush(ends, (later + duration[task]) << NODE_BITS | node)
        self.next_task[job] = last
        self.begun += last - first
        return last == self.past[job]


class _Static(_Queue):
    """Queue of jobs ordered by a rank that never changes."""

    def __init__(self, workload: ReplayWorkload, nodes: range, turnaround: int, rank: list[int]) -> None:
        super().__init__(workload, nodes, turnaround)
        self.rank = rank
        self.job_at = [0] * len(rank)
        for job, place in enumerate(rank):
            self.job_at[place] = job

    def advance(self, limit: int, start: list[int], place: list[int]) -> None:
        """Serve every end up to ``limit``."""
        ends, free, waiting = self.ends, self.free, self.waiting
        duration, next_task, past, turnaround = (
            self.workload.duration,
            self.next_task,
            self.past,
            self.turnaround,
        )
        bound = (limit + 1) << NODE_BITS
        while waiting and ends and ends[0] < bound:
            job = self.job_at[waiting[0]]
            task = next_task[job]
            stop = past[job]
            while task < stop and ends[0] < bound:
                end = ends[0]
                now = end >> NODE_BITS
                start[task] = now
                place[task] = node = end & NODE_MASK
                heapreplace(ends, (now + duration[task] + turnaround) << NODE_BITS | node)
                task += 1
            self.begun += task - next_task[job]
            next_task[job] = task
            if task == stop:
                heappop(waiting)
        while ends and ends[0] < bound:
            free.append(heappop(ends) & NODE_MASK)

    def arrive(self, now: int, job: int, start: list[int], place: list[int]) -> None:
        """Start an arriving job; tasks without a free node wait."""
        if not self.launch(now, job, start, place):
            heappush(self.waiting, self.rank[job])


class _FewestRemaining(_Queue):
    """Queue of jobs ordered by their tasks not yet ended.

    Each change of a key adds an entry to the heap. Keys only decrease, so a job's newest entry sorts before
    its older ones, and those reach the top only when all its tasks have started: then they are dropped.
    """

    def __init__(self, workload: ReplayWorkload, nodes: range, turnaround: int) -> None:
        super().__init__(workload, nodes, turnaround)
        self.bits = max(1, workload.job_count.bit_length())
        self.remaining = [past - first for first, past in zip(self.next_task, self.past, strict=True)]

    def advance(self, limit: int, start: list[int], place: list[int]) -> None:
        """Serve every end up to ``limit``."""
        ends, free, waiting, runs, remaining = self.ends, self.free, self.waiting, self.runs, self.remaining
        duration, next_task, past, turnaround = (
            self.workload.duration,
            self.next_task,
            self.past,
            self.turnaround,
        )
        bits, mask = self.bits, (1 << self.bits) - 1
        bound = (limit + 1) << NODE_BITS
        while waiting and ends and ends[0] < bound:
            end = ends[0]
            node = end & NODE_MASK
            ended = runs[node]
            remaining[ended] -= 1
            if next_task[ended] < past[ended]:
                heappush(waiting, remaining[ended] << bits | ended)
            while True:
                job = waiting[0] & mask
                task = next_task[job]
                if task < past[job]:
                    break
                heappop(waiting)
            now = end >> NODE_BITS
            start[task] = now
            place[task] = node
            runs[node] = job
            next_task[job] = task + 1
            self.begun += 1
            heapreplace(ends, (now + duration[task] + turnaround) << NODE_BITS | node)
            if task + 1 == past[job]:
                heappop(waiting)
                while waiting and next_task[waiting[0] & mask] == past[waiting[0] & mask]:
                    heappop(waiting)
        while ends and ends[0] < bound:
            node = heappop(ends) & NODE_MASK
            remaining[runs[node]] -= 1
            free.append(node)

    def arrive(self, now: int, job: int, start: list[int], place: list[int]) -> None:
        """Start an arriving job; tasks without a free node wait."""
        if not self.launch(now, job, start, place):
            heappush(self.waiting, self.remaining[job] << self.bits | job)


def _queue(
    workload: ReplayWorkload, settings: ReplaySettings, nodes: range, turnaround: int
) -> _Static | _FewestRemaining:
    if settings.order == FewestRemaining.name:
        return _FewestRemaining(workload, nodes, turnaround)
    return _Static(workload, nodes, turnaround, static_rank(workload, settings))


def central(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run the oracle: all nodes behind one queue."""
    turnaround = TASK_MESSAGES * settings.delay_us
    queue = _queue(workload, settings, range(settings.nodes), turnaround)
    return _count_messages(_play(workload, [queue], FLOOR_MESSAGES * settings.delay_us, 0, progress))


def ideal(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run the oracle without messages, except for the minimum."""
    queue = _queue(workload, settings, range(settings.nodes), 0)
    return _play(workload, [queue], FLOOR_MESSAGES * settings.delay_us, 0, progress)


def independent(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run one queue per broker on its own share of the nodes; jobs are dealt round robin, brokers exchange
    nothing."""
    brokers, nodes, delay = settings.brokers, settings.nodes, settings.delay_us
    shares = [range(nodes * broker // brokers, nodes * (broker + 1) // brokers) for broker in range(brokers)]
    queues = [_queue(workload, settings, share, TASK_MESSAGES * delay) for share in shares]
    return _count_messages(_play(workload, queues, 2 * delay, delay, progress))


def _count_messages(ran: ReplayOutcome) -> ReplayOutcome:
    return msgspec.structs.replace(ran, messages=TASK_MESSAGES * int((ran.start >= 0).sum()))


def _play(
    workload: ReplayWorkload,
    queues: list[_Static] | list[_FewestRemaining] | list[_Static | _FewestRemaining],
    floor: int,
    notice: int,
    progress: Progress | None,
) -> ReplayOutcome:
    """Deal the jobs round robin; a queue is advanced only when it gets a job, and at the end."""
    start = [-1] * workload.task_count
    place = [-1] * workload.task_count
    decision_ns: list[int] = []
    stopped = False
    for job, arrival in enumerate(workload.arrival):
        now = arrival + floor
        queue = queues[job % len(queues)]
        queue.advance(now, start, place)
        began = perf_counter_ns()
        queue.arrive(now, job, start, place)
        decision_ns.append(perf_counter_ns() - began)
        if progress is not None and job % JOBS_PER_REPORT == 0:
            stopped = not progress(sum(each.begun for each in queues))
            if stopped:
                break
    for queue in queues:
        while queue.waiting and not stopped:
            # late enough for every waiting task to start: the latest end, repeatedly
            queue.advance(max(queue.ends) >> NODE_BITS, start, place)
            stopped = progress is not None and not progress(sum(each.begun for each in queues))
    ran = make_outcome(workload, start, place, notice, sum(queue.begun for queue in queues))
    assert ran.complete or stopped, "a task never started"
    return msgspec.structs.replace(ran, decision_ns=decision_ns)
