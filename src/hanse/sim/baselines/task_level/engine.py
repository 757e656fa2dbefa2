"""Event loop of the schedulers of the literature.

Two stores of events, merged by (time, order of creation): a heap for events with times of their own (a
task's end), and a first-in-first-out *lane* for messages that all take the same time. On a network with one
constant delay most events are such messages, and a queue serves them several times faster than a heap. An
event carries its handler and two arguments; a batch of messages with one time and one cause is one event
with a list.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from time import perf_counter_ns
from typing import Any, Final

import msgspec

from hanse.sim.replay.run_records import Progress, ReplayOutcome, ReplaySettings, ReplayWorkload, make_outcome

EVENTS_PER_REPORT: Final = 20_000
"""Events between two calls of the progress function."""

Handler = Callable[[int, Any, Any], None]
Event = tuple[int, int, Handler, Any, Any]


class Engine:
    """Virtual time, the events to come, and the record of all runs. A scheduler is a subclass with
    handlers."""

    lane_messages = 1
    """One-way delays of an event in the lane: 1 for single messages, 2 for a request with its reply."""
    notice_messages = 0
    """One-way delays between a task's end and the moment its job counts as ended."""

    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        self.workload = workload
        self.settings = settings
        self.delay = settings.delay_us
        self.lane_delay = settings.delay_us * self.lane_messages
        self.heap: list[Event] = []
        self.lane: deque[Event] = deque()
        self.sequence = 0
        self.start = [-1] * workload.task_count
        self.node = [-1] * workload.task_count
        self.begun = 0
        self.messages = 0
        self.rejects = 0
        self.substitutions = 0
        self.heartbeats = 0
        self.decision_ns: list[int] = []

    def call_at(self, time: int, handler: Handler, first: Any = None, second: Any = None) -> None:
        """Call ``handler(time, first, second)`` at ``time``."""
        self.sequence += 1
        heappush(self.heap, (time, self.sequence, handler, first, second))

    def send(self, now: int, handler: Handler, first: Any = None, second: Any = None) -> None:
        """Call the handler when a message sent ``now`` has passed the lane."""
        self.sequence += 1
        self.lane.append((now + self.lane_delay, self.sequence, handler, first, second))

    def arrive(self, now: int, job: int) -> None:
        """Handle a job's arrival at its scheduler."""
        raise NotImplementedError

    def _on_arrival(self, now: int, job: int, _: Any) -> None:
        """Time the decision and queue the next arrival, so that the heap never holds more than one."""
        if job + 1 < self.workload.job_count:
            self.call_at(self.workload.arrival[job + 1], self._on_arrival, job + 1)
        began = perf_counter_ns()
        self.arrive(now, job)
        self.decision_ns.append(perf_counter_ns() - began)

    def run(self, progress: Progress | None = None) -> ReplayOutcome:
        """Run the whole workload; stop early if ``progress`` asks for it."""
        if self.workload.job_count:
            self.call_at(self.workload.arrival[0], self._on_arrival, 0)
        heap, lane = self.heap, self.lane
        while heap or lane:
            for _ in range(EVENTS_PER_REPORT):
                if lane and (not heap or lane[0] < heap[0]):
                    time, _order, handler, first, second = lane.popleft()
                elif heap:
                    time, _order, handler, first, second = heappop(heap)
                else:
                    break
                handler(time, first, second)
            if progress is not None and not progress(self.begun):
                break
        return self._outcome()

    def _outcome(self) -> ReplayOutcome:
        ran = make_outcome(
            self.workload, self.start, self.node, self.delay * self.notice_messages, self.begun
        )
        assert ran.complete or self.heap or self.lane, "events ran out before every task had started"
        return msgspec.structs.replace(
            ran,
            messages=self.messages,
            rejects=self.rejects,
            substitutions=self.substitutions,
            heartbeats=self.heartbeats,
            decision_ns=self.decision_ns,
        )
