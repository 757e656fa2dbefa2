"""Load sharing, limited to free counts: brokers with nodes of their own tell each other how many are free.

The middle of the three coordination modes (``independent``, ``shared``, ``central``), defined here because
the sources only name it. Jobs are dealt round robin to brokers; each broker owns an equal, fixed share of
the nodes and knows it exactly. Every ``gossip_us`` it sends every other broker one number: its free nodes
less its waiting tasks. Of a job, a broker runs the tasks that fit on its own free nodes; it sends as many of
the other tasks as it believes free elsewhere to the brokers with the largest numbers (ties to the lowest),
reducing the numbers as it does; the rest waits in its own queue in the chosen order. On gossip that reports
free nodes, a broker with waiting tasks sends its best ones there, at most its fair part (the number divided
by the other brokers, rounded up), so that not all brokers fill the same nodes. A task moves once at most: at
its new broker it runs or waits, with the key it had when it left.

A launch takes two messages (broker, warden, node), an end one to the owner of the node and one to the job's
broker, tasks sent together one. A job ends when its broker hears of its last task.
"""

from heapq import heappush
from typing import Any

from hanse.sim.baselines.task_level.broker_queue import TaskQueue, job_keys
from hanse.sim.baselines.task_level.engine import Engine
from hanse.sim.replay.run_records import Progress, ReplayOutcome, ReplaySettings, ReplayWorkload


class _LoadSharing(Engine):
    notice_messages = 1

    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        super().__init__(workload, settings)
        brokers, nodes = settings.brokers, settings.nodes
        self.brokers = brokers
        self.idle = [
            list(reversed(range(nodes * broker // brokers, nodes * (broker + 1) // brokers)))
            for broker in range(brokers)
        ]
        keys, self.follows_progress = job_keys(workload, settings)
        self.queues = [TaskQueue(workload, keys.copy()) for _ in range(brokers)]
        self.believed_free = [[len(idle) for idle in self.idle] for _ in range(brokers)]
        """Per broker: the last number from each other broker, less the tasks sent there since."""
        self.job_of = [0] * workload.task_count
        for job in range(workload.job_count):
            for task in range(workload.offset[job], workload.offset[job + 1]):
                self.job_of[task] = job
        if brokers > 1:
            self.call_at(settings.gossip_us, self.on_gossip_timer)

    def arrive(self, now: int, job: int) -> None:
        """Run the tasks that fit, send those that fit elsewhere, queue the rest."""
        broker = job % self.brokers
        queue = self.queues[broker]
        for task in range(self.workload.offset[job], self.workload.offset[job + 1]):
            queue.push(job, task)
        self.serve(now, broker)
        believed = self.believed_free[broker]
        while queue.count:
            other = max(
                (peer for peer in range(self.brokers) if peer != broker),
                key=lambda peer: (believed[peer], -peer),
                default=-1,
            )
            if other < 0 or believed[other] <= 0:
                break
            self.forward(now, broker, other, believed[other])

    def forward(self, now: int, broker: int, other: int, most: int) -> None:
        """Send a broker's best waiting tasks of its own jobs to another, with their keys."""
        queue = self.queues[broker]
        sent: list[tuple[int, int]] = []
        kept: list[int] = []
        while queue.count and len(sent) < most:
            task = queue.pop()
            if self.job_of[task] % self.brokers == broker:
                sent.append((task, queue.keys[self.job_of[task]]))
            else:
                kept.append(task)
        for task in kept:
            queue.push(self.job_of[task], task)
        self.believed_free[broker][other] -= len(sent) if sent else most
        if sent:
            self.messages += 1
            self.send(now, self.on_forwarded_tasks, other, sent)

    def on_forwarded_tasks(self, now: int, broker: int, tasks: list[tuple[int, int]]) -> None:
        """Handle tasks from another broker."""
        queue = self.queues[broker]
        for task, key in tasks:
            job = self.job_of[task]
            queue.push(job, task)
            if key < queue.keys[job]:
                queue.keys[job] = key
                queue.on_key_lowered(job)
        self.serve(now, broker)

    def serve(self, now: int, broker: int) -> None:
        """Give free nodes to the best waiting tasks."""
        queue, idle = self.queues[broker], self.idle[broker]
        began = now + 2 * self.delay
        while queue.count and idle:
            task, node = queue.pop(), idle.pop()
            self.start[task] = began
            self.node[task] = node
            self.begun += 1
            self.messages += 3
            self.sequence += 1
            ended_at = began + self.workload.duration[task] + self.delay
            heappush(self.heap, (ended_at, self.sequence, self.on_task_end, broker, (task, node)))

    def on_task_end(self, now: int, broker: int, ran: tuple[int, int]) -> None:
        """Handle a task's end at the owner of its node, and at its job's broker if that is another one."""
        task, node = ran
        job = self.job_of[task]
        home = job % self.brokers
        self.messages += home != broker
        if self.follows_progress:
            self.queues[home].keys[job] -= 1
            self.queues[home].on_key_lowered(job)
        self.idle[broker].append(node)
        self.serve(now, broker)

    def on_gossip_timer(self, now: int, _first: Any, _second: Any) -> None:
        """Send every broker's number to all others; gossip ends with the last start."""
        for broker in range(self.brokers):
            number = len(self.idle[broker]) - self.queues[broker].count
            self.heartbeats += self.brokers - 1
            self.send(now, self.on_gossip, broker, number)
        if self.begun < self.workload.task_count:
            self.call_at(now + self.settings.gossip_us, self.on_gossip_timer)

    def on_gossip(self, now: int, source: int, number: int) -> None:
        """Handle gossip at all other brokers."""
        part = -(-number // (self.brokers - 1))
        for broker in range(self.brokers):
            if broker != source:
                self.believed_free[broker][source] = number
                if part > 0 and self.queues[broker].count:
                    self.forward(now, broker, source, part)


def load_sharing(
    workload: ReplayWorkload, settings: ReplaySettings, progress: Progress | None = None
) -> ReplayOutcome:
    """Run limited sharing."""
    return _LoadSharing(workload, settings).run(progress)
