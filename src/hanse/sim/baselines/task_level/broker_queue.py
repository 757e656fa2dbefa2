"""Queue of one broker's waiting tasks, grouped by job and ordered by a key of the job."""

from collections import deque
from heapq import heappop, heappush
from itertools import pairwise

from hanse.policy.queue_orders import FewestRemaining
from hanse.sim.baselines.task_level.job_ranks import static_rank
from hanse.sim.replay.run_records import ReplaySettings, ReplayWorkload


class TaskQueue:
    """Queue of tasks by job; the job with the smallest key is first, ties go to the earlier job, its tasks
    are first in first out.

    Keys only decrease (fewest-remaining). Each decrease adds an entry to the heap; a job's newest entry
    sorts before its older ones, which reach the top only when none of its tasks waits, and are dropped then.
    The heap holds at most one entry per push and per change, so it is bounded by twice the number of tasks.
    """

    def __init__(self, workload: ReplayWorkload, keys: list[int]) -> None:
        self.bits = max(1, workload.job_count.bit_length())
        self.mask = (1 << self.bits) - 1
        self.keys = keys
        """Key per job; shared with the owner, who changes it and then calls ``on_key_lowered``."""
        self.heap: list[int] = []
        self.tasks: dict[int, deque[int]] = {}
        self.count = 0

    def push(self, job: int, task: int) -> None:
        """Add a task behind the others of its job."""
        waiting = self.tasks.get(job)
        self.count += 1
        if waiting is None:
            self.tasks[job] = deque((task,))
            heappush(self.heap, self.keys[job] << self.bits | job)
        else:
            waiting.append(task)

    def push_front(self, job: int, task: int) -> None:
        """Add a task before the others of its job."""
        waiting = self.tasks.get(job)
        if waiting is None:
            self.push(job, task)
        else:
            self.count += 1
            waiting.appendleft(task)

    def on_key_lowered(self, job: int) -> None:
        """Update the heap after a decrease of a job's key."""
        if job in self.tasks:
            heappush(self.heap, self.keys[job] << self.bits | job)

    def pop(self) -> int:
        """Remove and return the best task."""
        heap, tasks, mask = self.heap, self.tasks, self.mask
        while True:
            job = heap[0] & mask
            waiting = tasks.get(job)
            if waiting is not None:
                break
            heappop(heap)
        task = waiting.popleft()
        self.count -= 1
        if not waiting:
            del tasks[job]
        return task


def job_keys(workload: ReplayWorkload, settings: ReplaySettings) -> tuple[list[int], bool]:
    """Return the key of every job under the order of the settings, and True if each end of a task lowers it
    by one."""
    if settings.order == FewestRemaining.name:
        offset = workload.offset
        return [past - first for first, past in pairwise(offset)], True
    return static_rank(workload, settings), False
