"""Input and output of a policy: the workload, the settings and the outcome of one run.

Times are whole microseconds. A workload holds plain Python lists, because the event loops read single
elements far more often than whole columns, and a list gives an ``int`` in a third of the time a NumPy array
needs.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.policy.node_rankers import FirstNodeRanker
from hanse.registry import NODE_RANKERS, QUEUE_ORDERS

Ints = npt.NDArray[np.int64]

ENGINES: Final = ("auto", "compiled", "machines")
"""Engines of ``hanse``: the compiled league, the machines, or (auto) the compiled league where it can run."""
SECOND: Final = 1_000_000
NODES_MAX: Final = 1 << 20
"""Largest number of nodes in a replay: event keys have twenty bits for the node."""

Progress = Callable[[int], bool]
"""Function called now and then with the number of tasks started so far; False asks the run to stop."""


class ReplayWorkload(msgspec.Struct, frozen=True, eq=False):
    """Jobs in order of arrival, each with at least one task; a task occupies one node for its duration."""

    name: str
    arrival: list[int]
    """[J] microseconds since the first arrival."""
    offset: list[int]
    """[J+1] bounds of the jobs' tasks in ``duration``."""
    duration: list[int]
    """[T] microseconds."""
    estimate: list[int]
    """[J] mean task duration in microseconds: the schedulers of the literature know it."""
    priority: list[int]
    """[J] larger goes first under the order ``priority``; 0 if the trace has none."""
    user: list[int] = []
    """[J] number of the job's user, -1 if it has none; empty if the trace has no users."""

    @property
    def job_count(self) -> int:
        """Number of jobs."""
        return len(self.arrival)

    @property
    def task_count(self) -> int:
        """Number of tasks."""
        return len(self.duration)

    def tenant_of(self, job: int) -> str:
        """Return the tenant of a job: its user, as ``user-7``, or ``default``."""
        number = self.user[job] if self.user else -1
        return f"user-{number}" if number >= 0 else "default"

    def span(self) -> int:
        """Return the microseconds from the first arrival to the last."""
        return self.arrival[-1] - self.arrival[0] if self.arrival else 0

    def load(self, nodes: int) -> float:
        """Return the work brought per microsecond of arrivals, as a share of ``nodes``; infinite if all jobs
        arrive at once."""
        span = self.span()
        return sum(self.duration) / (nodes * span) if span else float("inf")


class ReplaySettings(msgspec.Struct, frozen=True):
    """Everything that decides a run apart from the workload."""

    nodes: int
    clusters: int = 10
    brokers: int = 4
    order: str = "fewest-remaining"
    """Queue order, for the policies that have a choice. Ties always go to the job that arrived first, then to
    the first one in the trace."""
    delay_us: int = 500
    """One-way delay of every message."""
    seed: int = 0
    short_cutoff_us: int = 90_581_100
    """Limit of the mean task duration of short jobs."""
    short_percent: float = 2.0
    """Per cent of the nodes that only short jobs may use (Hawk, Eagle, Pigeon)."""
    reserve_percent: float = 0.0
    """Per cent of every cluster's nodes that only short jobs may use under ``hanse``; 0 = no reserve."""
    pigeon_group: int = 100
    """Approximate number of nodes per group of Pigeon."""
    heartbeat_us: int = 5 * SECOND
    """Period of a warden's reports of changes to every broker (Megha); beat of ``hanse`` with faults."""
    gossip_us: int = SECOND
    """Period of the brokers' gossip about free nodes (``shared``)."""
    node_gpus: int = 8
    """GPUs of a node, for the schedulers of GPU jobs; so are the next three."""
    node_cpus: int = 0
    """CPUs of a node; 0 = not counted."""
    node_memory_gib: int = 0
    """Memory of a node in GiB; 0 = not counted."""
    node_list: str = ""
    """List of nodes, for the placement of pods."""
    faults: str = ""
    """File of faults to inject, for the policies that support them; empty = none."""
    node_ranker: str = FirstNodeRanker.name
    """Choice of nodes at the wardens of ``hanse``."""
    engine: str = "auto"
    """Engine of ``hanse``; the outcome does not depend on it."""

    def find_problem(self) -> str:
        """Return the reason why these settings cannot run, in one sentence; empty if they can."""
        if not 0 < self.nodes <= NODES_MAX:
            return f"nodes must be between 1 and {NODES_MAX}"
        if self.clusters < 1 or self.brokers < 1:
            return "there must be at least one cluster and one broker"
        if self.clusters * self.brokers > self.nodes:
            return f"{self.nodes} nodes are too few for {self.clusters} clusters x {self.brokers} brokers"
        if problem := QUEUE_ORDERS.find_problem(self.order):
            return problem
        if problem := NODE_RANKERS.find_problem(self.node_ranker):
            return problem
        if self.engine not in ENGINES:
            return f"unknown engine {self.engine!r}; known: {', '.join(ENGINES)}"
        if self.delay_us < 0 or self.heartbeat_us <= 0 or self.gossip_us <= 0:
            return "the delay must not be negative, heartbeat and gossip intervals must be positive"
        if not 0 <= self.short_percent <= 50 or not 0 <= self.reserve_percent <= 50:
            return "short and reserve per cent must lie in 0..50"
        if self.pigeon_group < 1 or min(self.node_gpus, self.node_cpus, self.node_memory_gib) < 0:
            return "a Pigeon group must hold a node, and amounts of a node must not be negative"
        return ""


class ReplayOutcome(msgspec.Struct, frozen=True, eq=False):
    """Outcome of a run: node and time of every task, and the costs."""

    start: Ints
    """[T] start of each task, -1 = not started (only in a run that was stopped)."""
    node: Ints
    """[T] node of each task."""
    job_end: Ints
    """[J] time at which the scheduler that accepted the job knew of the end of its last task, -1 = not
    ended."""
    launches: int = 0
    """Number of starts; more than there are tasks if a task ran twice."""
    messages: int = 0
    """Every probe, request, reply, claim, denial, launch and completion; without heartbeats and gossip."""
    rejects: int = 0
    """Rejected claims or probes."""
    substitutions: int = 0
    """Claims served with another node than the one asked for."""
    heartbeats: int = 0
    """Periodic messages."""
    decision_ns: list[int] = []
    """Wall nanoseconds of our code for each job's arrival; the only field besides ``engine`` that differs
    between equal runs."""
    complete: bool = True
    """False if the run was stopped early."""
    grants: int = 0
    """Offers of freed room by wardens to waiting brokers (``hanse``)."""
    releases: int = 0
    """Grants that were given back unused."""
    engine: str = ""
    """Engine: ``compiled`` or ``machines``; empty for other policies."""


class ReplayError(ValueError):
    """Request that cannot be replayed; the message is one sentence for the user."""


def make_outcome(
    workload: ReplayWorkload, start: list[int], node: list[int], notice: int, launches: int
) -> ReplayOutcome:
    """Return the outcome of the runs in ``start`` and ``node``; a job ends ``notice`` microseconds after its
    last task."""
    began = np.asarray(start, np.int64)
    ended = began + np.asarray(workload.duration, np.int64)
    heads = np.asarray(workload.offset[:-1], np.int64)
    job_end = np.maximum.reduceat(ended, heads) + notice if workload.job_count else np.zeros(0, np.int64)
    complete = bool(np.all(began >= 0))
    if not complete:
        job_end[np.minimum.reduceat(began, heads) < 0] = -1
    return ReplayOutcome(began, np.asarray(node, np.int64), job_end, launches, complete=complete)
