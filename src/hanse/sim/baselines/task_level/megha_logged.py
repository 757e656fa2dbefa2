"""Megha as in the simulator that wrote its authors' logs, with the defects that shaped them.

It is here so that those logs can be checked; to compare schedulers take ``megha`` or ``megha-repaired``. What
differs from both:

* A task's end brings its broker, one message later, the *whole and true* state of every cluster; so does
  every denial, and a heartbeat (30 s in the logs). That state overwrites what the broker knows of its own
  claims under way, so a node that was claimed a moment ago is claimed again for the next task in the queue.
* A claim is checked when it is sent, and its task starts two messages later; a denied one is back in the
  queue after one message.
* The queue follows the number of a job's tasks not yet ended. Among equals a newcomer is last, a job that
  comes back because of a denial first. A job that arrives while others wait is placed with the next news.
* A broker draws a partition of its own that has a free node, and a node in it; then a foreign one.
* **Of events at one moment none is first.** The authors' events all claim to be the smaller one, so which
  goes first is the accident of a binary heap. With whole-second durations many tasks end at one moment, each
  end claims all the nodes that are free then, and the accident decides which jobs win: large jobs fare better
  than the order of the queue would let them. One broker and one cluster on the Google sub-trace, three seeds:
  p99 of the job delay is 413 to 430 s so (logged: 417), 443 to 448 with the latest event first, and 506 with
  the earliest first, which is what a broker without these defects has (``independent``). The heap of the
  standard library is used here in the same way.

Jobs are dealt to brokers in turn; the latest source deals them by their numbers of tasks, which fits the log
of four brokers less well (mean 76 s, p50 3.0 s, p90 77 s against 68, 2.0 and 43 logged). Left out: jobs with
equal arrivals are moved apart by 10 ms there.
"""

from heapq import heappop, heappush
from random import Random
from typing import Any

from hanse.sim.baselines.task_level.engine import Engine, Handler
from hanse.sim.baselines.task_level.stale_views import Layout
from hanse.sim.replay.records import Outcome, Progress, Settings, Workload


class _Smaller:
    """Smaller than everything, also than another one of its kind."""

    __slots__ = ()

    def __lt__(self, _: object) -> bool:
        return True


class _Wardens:
    """The truth: free nodes by partition, and how often each partition has changed."""

    def __init__(self, layout: Layout) -> None:
        self.part_of = layout.part_of
        self.free = [list(part) for part in layout.parts]
        self.changes = [0] * len(self.free)
        self.place = [0] * len(layout.part_of)
        """Where a node stands in its partition's list; -1 = taken."""
        for part in layout.parts:
            for index, node in enumerate(part):
                self.place[node] = index

    def take(self, node: int) -> bool:
        """Take a node; false when it is taken already."""
        index = self.place[node]
        if index < 0:
            return False
        part = self.part_of[node]
        nodes = self.free[part]
        last = nodes.pop()
        if last != node:
            nodes[index] = last
            self.place[last] = index
        self.place[node] = -1
        self.changes[part] += 1
        return True

    def give(self, node: int) -> None:
        """A node is free again."""
        part = self.part_of[node]
        self.place[node] = len(self.free[part])
        self.free[part].append(node)
        self.changes[part] += 1


class _Broker:
    """A broker: what it believes to be free, and its queue."""

    def __init__(self, number: int, layout: Layout, random: Random) -> None:
        self.draw = random.random
        self.free = [list(part) for part in layout.parts]
        self.seen = [0] * len(self.free)
        """Per partition: how far its changes were seen; -1 = the broker has taken nodes in its own mind."""
        self.rounds = (
            [part for part in range(len(self.free)) if part % layout.brokers == number],
            [part for part in range(len(self.free)) if part % layout.brokers != number],
        )
        self.heap: list[tuple[int, int, int]] = []
        """Remaining tasks, turn and job; older entries of a job are dropped when they surface."""
        self.turn: dict[int, int] = {}
        """Jobs in the queue, with their turn among equals."""
        self.first = 0
        self.last = 0

    def see(self, wardens: _Wardens) -> None:
        """Believe the whole truth, claims under way or not."""
        for part, changes in enumerate(wardens.changes):
            if self.seen[part] != changes:
                self.free[part] = wardens.free[part].copy()
                self.seen[part] = changes

    def match(self) -> int:
        """Take a node that is believed to be free; -1 = none."""
        for parts in self.rounds:
            open_parts = [part for part in parts if self.free[part]]
            if open_parts:
                part = open_parts[int(self.draw() * len(open_parts))]
                nodes = self.free[part]
                index = int(self.draw() * len(nodes))
                node, nodes[index] = nodes[index], nodes[-1]
                nodes.pop()
                self.seen[part] = -1
                return node
        return -1

    def enter(self, job: int, remaining: int, front: bool) -> None:
        """Let a job wait: behind its equals, or before them."""
        if front:
            self.first -= 1
        else:
            self.last += 1
        self.turn[job] = self.first if front else self.last
        self.changed(job, remaining)

    def changed(self, job: int, remaining: int) -> None:
        """A waiting job has so many tasks left."""
        heappush(self.heap, (remaining, self.turn[job], job))

    def best(self, remaining: list[int]) -> int:
        """The job to serve; there must be one."""
        while True:
            left, turn, job = self.heap[0]
            if left == remaining[job] and self.turn.get(job) == turn:
                return job
            heappop(self.heap)


class _Logged(Engine):
    notice_messages = 1

    def __init__(self, workload: Workload, settings: Settings) -> None:
        super().__init__(workload, settings)
        random = Random(settings.seed)
        layout = Layout(settings)
        self.wardens = _Wardens(layout)
        self.brokers = [_Broker(number, layout, random) for number in range(settings.brokers)]
        offset = workload.offset
        self.waiting = [list(range(offset[job], offset[job + 1])) for job in range(workload.jobs)]
        """Per job: a heap of its tasks that are neither claimed nor begun."""
        self.remaining = [len(tasks) for tasks in self.waiting]
        self.broker_of = [self.brokers[job % settings.brokers] for job in range(workload.jobs)]
        self.at(settings.heartbeat_us, self.heartbeat)

    def at(self, time: int, handler: Handler, first: Any = None, second: Any = None) -> None:
        """Let it happen at ``time``, before or after whatever else happens then."""
        order: Any = _Smaller()
        heappush(self.heap, (time, order, handler, first, second))

    def arrive(self, now: int, job: int) -> None:
        """Queue a job; it is placed at once if no other waits."""
        broker = self.broker_of[job]
        broker.enter(job, self.remaining[job], front=False)
        if len(broker.turn) == 1:
            self.place(now, broker)

    def place(self, now: int, broker: _Broker) -> None:
        """Claim all nodes that are believed to be free, best job first."""
        while broker.turn:
            job = broker.best(self.remaining)
            waiting = self.waiting[job]
            while waiting:
                node = broker.match()
                if node < 0:
                    return
                self.messages += 1
                self.at(now, self.claimed, (job, heappop(waiting)), node)
            del broker.turn[job]

    def claimed(self, now: int, claim: tuple[int, int], node: int) -> None:
        """A warden checks a claim."""
        self.messages += 1
        if not self.wardens.take(node):
            self.rejects += 1
            self.at(now + self.delay, self.denied, claim)
            return
        _, task = claim
        self.start[task] = began = now + 2 * self.delay
        self.node[task] = node
        self.begun += 1
        self.at(began + self.workload.duration[task], self.ended, claim[0], node)

    def denied(self, now: int, claim: tuple[int, int], _: None) -> None:
        """A task is back in the queue, and the truth comes with it."""
        job, task = claim
        broker = self.broker_of[job]
        heappush(self.waiting[job], task)
        if job not in broker.turn:
            broker.enter(job, self.remaining[job], front=True)
        self.at(now, self.told, broker)

    def ended(self, now: int, job: int, node: int) -> None:
        """A task has ended; its broker hears of it."""
        self.messages += 1
        self.wardens.give(node)
        broker = self.broker_of[job]
        self.remaining[job] -= 1
        if job in broker.turn:
            broker.changed(job, self.remaining[job])
        self.at(now + self.delay, self.told, broker)

    def told(self, now: int, broker: _Broker, _: None) -> None:
        """A broker learns the whole truth, and acts on it one message later."""
        broker.see(self.wardens)
        self.place(now + self.delay, broker)

    def heartbeat(self, now: int, _first: None, _second: None) -> None:
        """All brokers learn the truth; heartbeats end with the last start."""
        if self.begun == self.workload.tasks:
            return
        self.heartbeats += len(self.brokers) * self.settings.clusters
        for broker in self.brokers:
            self.told(now, broker, None)
        self.at(now + self.settings.heartbeat_us + self.delay, self.heartbeat)


def megha_logged(workload: Workload, settings: Settings, progress: Progress | None = None) -> Outcome:
    """Run it; its queue follows the fewest tasks remaining, whatever the settings say."""
    return _Logged(workload, settings).run(progress)
