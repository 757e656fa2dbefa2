"""Megha as published (megha3.0, the authors' constraint-aware simulator), and Megha with its defects
repaired.

Brokers hold a full but stale view of all clusters and claim nodes optimistically; the warden of a cluster
checks. Each cluster is cut into one logical partition per broker: a broker takes from its own partitions
first, then borrows. Jobs are dealt to brokers round robin. A claim is a batch of at most 100 placements for
one cluster. A warden that must deny some returns them in one message together with the changes since its
last message to that broker. A node reports the end of its task to its warden and the broker that used it;
that broker refills it from its queue at once, the others hear of it with the heartbeat (5 s). A job ends
when its broker hears of its last task: three messages at the least.

*As published*: clusters are searched in a fixed order; a queue of tasks, first in first out, denied ones to
the front; changes are two lists, and nodes taken are applied before nodes freed, so that a node freed and
taken again counts as free; a node reported free goes to the first waiting task; new tasks do not wait behind
the queue.

*Repaired*: the search starts at a random cluster for every task and claims are gathered per cluster; changes
give the final state; after every denial and all changes, waiting tasks are matched again; the queue follows
``order``.
"""

from collections import deque
from heapq import heappush
from random import Random
from typing import Final

import msgspec

from hanse.sim.baselines.task_level.broker_queue import TaskQueue, job_keys
from hanse.sim.baselines.task_level.engine import Engine
from hanse.sim.baselines.task_level.stale_views import PartitionLayout, StaleView
from hanse.sim.replay.run_records import Progress, ReplayOutcome, ReplaySettings, ReplayWorkload

BATCH_MAX: Final = 100
"""Placements in one claim."""

Change = tuple[int, bool, int]
"""Node, True if it became free, and the broker that knows already."""


class _Megha(Engine):
    """Wardens, network and the common part of both kinds of broker."""

    notice_messages = 1

    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        super().__init__(workload, settings)
        random = Random(settings.seed)
        self.layout = PartitionLayout(settings)
        self.brokers = settings.brokers
        self.views = [StaleView(self.layout, broker, random) for broker in range(settings.brokers)]
        self.free = [True] * settings.nodes
        self.changes: list[list[Change]] = [[] for _ in range(settings.clusters)]
        """Per cluster: changes since all brokers had every report."""
        self.reported = [[0] * settings.brokers for _ in range(settings.clusters)]
        """Per cluster and broker: number of those changes that were reported."""
        self.job_of = [0] * workload.task_count
        for job in range(workload.job_count):
            for task in range(workload.offset[job], workload.offset[job + 1]):
                self.job_of[task] = job
        self.call_at(settings.heartbeat_us, self.on_heartbeat_timer)

    def on_heartbeat_timer(self, now: int, _first: None, _second: None) -> None:
        """Send every broker the unreported changes of every warden; heartbeats end with the last start."""
        for cluster, changes in enumerate(self.changes):
            for broker in range(self.brokers):
                if self.reported[cluster][broker] < len(changes):
                    self.heartbeats += 1
                    self.send(now, self.on_heartbeat, broker, self.take_unreported_changes(cluster, broker))
            changes.clear()
            self.reported[cluster] = [0] * self.brokers
        if self.begun < self.workload.task_count:
            self.call_at(now + self.settings.heartbeat_us, self.on_heartbeat_timer)

    def take_unreported_changes(self, cluster: int, broker: int) -> list[Change]:
        """Return and mark as reported what a warden has not reported to a broker, without the broker's own
        changes."""
        changes = self.changes[cluster]
        since = self.reported[cluster][broker]
        self.reported[cluster][broker] = len(changes)
        return [change for change in changes[since:] if change[2] != broker]

    def on_heartbeat(self, now: int, broker: int, changes: list[Change]) -> None:
        """Handle a heartbeat at a broker."""
        raise NotImplementedError

    def on_denial(self, now: int, broker: int, answer: tuple[list[int], list[Change]]) -> None:
        """Handle a denial at a broker: the tasks refused, and the changes."""
        raise NotImplementedError

    def on_completion(self, now: int, broker: int, node: int, task: int) -> None:
        """Handle the report of a task's end at a broker."""
        raise NotImplementedError

    def send_claim(self, now: int, broker: int, batch: list[tuple[int, int]]) -> None:
        """Send a batch of (task, node) to the warden of its nodes."""
        self.messages += 1
        self.send(now, self.on_claim, broker, batch)

    def on_claim(self, now: int, broker: int, batch: list[tuple[int, int]]) -> None:
        """Check a claim at its warden: start possible tasks, return the rest with the changes."""
        free = self.free
        cluster = self.layout.cluster_of[batch[0][1]]
        changes = self.changes[cluster]
        refused = []
        began = now + self.delay
        for task, node in batch:
            if not free[node]:
                refused.append(task)
                continue
            free[node] = False
            changes.append((node, False, broker))
            self.start[task] = began
            self.node[task] = node
            self.sequence += 1
            ended_at = began + self.workload.duration[task] + self.delay
            heappush(self.heap, (ended_at, self.sequence, self.on_task_end, node, task))
        started = len(batch) - len(refused)
        self.begun += started
        self.messages += 3 * started  # a launch, and two reports of the end
        if refused:
            self.rejects += len(refused)
            self.messages += 1
            self.send(now, self.on_denial, broker, (refused, self.take_unreported_changes(cluster, broker)))

    def on_task_end(self, now: int, node: int, task: int) -> None:
        """Handle the end of a task at its warden and its broker."""
        broker = self.job_of[task] % self.brokers
        self.free[node] = True
        self.changes[self.layout.cluster_of[node]].append((node, True, broker))
        self.on_completion(now, broker, node, task)


class _Published(_Megha):
    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        super().__init__(workload, settings)
        self.queues: list[deque[int]] = [deque() for _ in range(settings.brokers)]

    def arrive(self, now: int, job: int) -> None:
        """Match every task, or queue it; send a batch when the cluster changes or the batch is full."""
        broker = job % self.brokers
        view, queue, cluster_of = self.views[broker], self.queues[broker], self.layout.cluster_of
        batch: list[tuple[int, int]] = []
        cluster = -1
        for task in range(self.workload.offset[job], self.workload.offset[job + 1]):
            node = view.match_in_order()
            if node < 0:
                queue.append(task)
                continue
            if batch and (cluster_of[node] != cluster or len(batch) == BATCH_MAX):
                self.send_claim(now, broker, batch)
                batch = []
            cluster = cluster_of[node]
            batch.append((task, node))
        if batch:
            self.send_claim(now, broker, batch)

    def on_heartbeat(self, now: int, broker: int, changes: list[Change]) -> None:
        """Apply taken nodes first, then give each free one to a waiting task if there is one."""
        view, queue = self.views[broker], self.queues[broker]
        for node, became_free, _ in changes:
            if not became_free:
                view.remove(node)
        for node, became_free, _ in changes:
            if became_free:
                if queue:
                    self.send_claim(now, broker, [(queue.popleft(), node)])
                else:
                    view.add(node)

    def on_denial(self, now: int, broker: int, answer: tuple[list[int], list[Change]]) -> None:
        """Put refused tasks at the front of the queue, one after the other."""
        refused, changes = answer
        self.queues[broker].extendleft(refused)
        self.on_heartbeat(now, broker, changes)

    def on_completion(self, now: int, broker: int, node: int, task: int) -> None:  # noqa: ARG002 - the queue has no keys
        """Refill the node from the queue."""
        queue = self.queues[broker]
        if queue:
            self.send_claim(now, broker, [(queue.popleft(), node)])
        else:
            self.views[broker].add(node)


class _Repaired(_Megha):
    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        super().__init__(workload, settings)
        self.keys, self.follows_progress = job_keys(workload, settings)
        self.queues = [TaskQueue(workload, self.keys) for _ in range(settings.brokers)]

    def arrive(self, now: int, job: int) -> None:
        """Queue the tasks and match."""
        queue = self.queues[job % self.brokers]
        for task in range(self.workload.offset[job], self.workload.offset[job + 1]):
            queue.push(job, task)
        self.match(now, job % self.brokers)

    def match(self, now: int, broker: int) -> None:
        """Give waiting tasks, best first, the nodes believed free; one batch per cluster."""
        queue, view, cluster_of = self.queues[broker], self.views[broker], self.layout.cluster_of
        batches: dict[int, list[tuple[int, int]]] = {}
        while queue.count and view.total:
            node = view.match_random()
            batch = batches.setdefault(cluster_of[node], [])
            batch.append((queue.pop(), node))
            if len(batch) == BATCH_MAX:
                self.send_claim(now, broker, batches.pop(cluster_of[node]))
        for batch in batches.values():
            self.send_claim(now, broker, batch)

    def on_heartbeat(self, now: int, broker: int, changes: list[Change]) -> None:
        """Apply the last change of each node, then match."""
        view = self.views[broker]
        for node, became_free in {node: became_free for node, became_free, _ in changes}.items():
            if became_free:
                view.add(node)
            else:
                view.remove(node)
        self.match(now, broker)

    def on_denial(self, now: int, broker: int, answer: tuple[list[int], list[Change]]) -> None:
        """Put refused tasks before the others of their job, in their order, and match again at once."""
        refused, changes = answer
        for task in reversed(refused):
            self.queues[broker].push_front(self.job_of[task], task)
        self.on_heartbeat(now, broker, changes)

    def on_completion(self, now: int, broker: int, node: int, task: int) -> None:
        """Count the task, then refill the node with the best task."""
        queue = self.queues[broker]
        if self.follows_progress:
            job = self.job_of[task]
            self.keys[job] -= 1
            queue.on_key_lowered(job)
        if queue.count:
            self.send_claim(now, broker, [(queue.pop(), node)])
        else:
            self.views[broker].add(node)


def megha(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run Megha as published; its queue is always first in first out."""
    return _Published(workload, msgspec.structs.replace(settings, order="fifo")).run(progress)


def megha_repaired(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run Megha repaired, with the order of the settings."""
    return _Repaired(workload, settings).run(progress)
