"""Jobs as users submit them: groups of equal tasks, and the rules that apply to them.

A job is one or more *groups*; a group is a number of tasks with the same ask, constraint and program, so that
a broker handles thousands of tasks as one line with a count. Dependencies (the DAG) are between groups: a
group starts when every task of the groups it names has succeeded; a DAG of single tasks is groups of one. A
job is checked once, on submission (``model.job_parser``); the machines trust what they are given.
"""

from enum import StrEnum
from typing import Final

import msgspec

from hanse.model.constraints import Constraint
from hanse.model.ids import SECOND, JobId
from hanse.model.resources import Resources

GROUPS_MAX: Final = 1_024
LABELS_MAX: Final = 32
NAME_CHARACTERS_MAX: Final = 128
PAYLOAD_BYTES_MAX: Final = 1 << 20
SPEC_BYTES_MAX: Final = 4 << 20
PRIORITY_MAX: Final = 1_000
RETRIES_MAX: Final = 100
DEADLINE_MAX: Final = 10 * 365 * 86_400 * SECOND
GRACE_MAX: Final = 3_600 * SECOND


class JobClass(StrEnum):
    """Value of time to a job: ``latency`` work may use the reserve of every cluster, ``batch`` may not."""

    LATENCY = "latency"
    BATCH = "batch"


class Proximity(StrEnum):
    """Distance that an affinity means: the same node or the same cluster."""

    NODE = "node"
    CLUSTER = "cluster"


class Affinity(msgspec.Struct, frozen=True, array_like=True):
    """Rule about other jobs: run where tasks with this label run, or keep apart from them."""

    label: str
    proximity: Proximity = Proximity.NODE
    apart: bool = False
    """False: only where such a task runs. True: never where one runs (with the own label: spread out)."""


class Together(StrEnum):
    """Part of a cluster in which all tasks of a gang run."""

    CLUSTER = "cluster"
    RACK = "rack"
    """Nodes with the same value of the attribute ``rack``."""
    NODE = "node"


class UnreachablePolicy(StrEnum):
    """Policy for a task whose cluster cannot be reached.

    ``move``: its watchdog ends it when the cluster's lease expires, and it starts again elsewhere. ``wait``:
    it continues, and the league waits for the cluster to come back.
    """

    MOVE = "move"
    WAIT = "wait"


class OnLoss(StrEnum):
    """Policy for a task whose attempt may have started and was lost, with an unknown result.

    ``retry``: it starts again. ``fail``: it ends as failed, and never starts a second time because of a loss.
    """

    RETRY = "retry"
    FAIL = "fail"


class SpeedUp(msgspec.Struct, frozen=True, array_like=True):
    """Speed-up of elastic work: speed (1000 = as at ``min``) at some sizes.

    Points are ``(milli-CPU, GPUs, speed)``, sorted; between points the next lower one counts.
    """

    points: tuple[tuple[int, int, int], ...]


class TaskGroup(msgspec.Struct, frozen=True):
    """Number of equal tasks of a job."""

    name: str = "main"
    count: int = 1
    ask: Resources = Resources(cpu=1_000)
    ask_max: Resources | None = None
    """Maximum for elastic work; ``ask`` is then the minimum."""
    speed_up: SpeedUp | None = None
    where: Constraint | None = None
    affinity: tuple[Affinity, ...] = ()
    needs: tuple[str, ...] = ()
    """Groups of this job that must succeed first."""
    duration: int | None = None
    """User's estimate of one task's run time at ``ask``, in microseconds."""
    payload: bytes = b""
    """Program to run, encoded when the job was submitted; opaque to brokers and wardens."""
    input_bytes: int = 0
    """Bytes that each task reads from the clusters in ``JobSpec.data`` before it starts to work."""


class JobSpec(msgspec.Struct, frozen=True):
    """Job as submitted. Every field has a safe default except the groups."""

    groups: tuple[TaskGroup, ...]
    name: str = "job"
    tenant: str = "default"
    gang: bool = False
    """True if all tasks start together or none does, in one cluster. A gang has exactly one group."""
    klass: JobClass = JobClass.BATCH
    priority: int = 0
    """Higher is more urgent, -1000 to 1000."""
    deadline: int | None = None
    """Microseconds after submission by which it must have ended; then it is cancelled."""
    retries: int = 0
    """Number of restarts of a task that failed by itself. Losses that are not its fault do not count."""
    on_loss: OnLoss = OnLoss.RETRY
    preemptible: bool = False
    grace: int = 5 * SECOND
    """Time between the checkpoint signal and the end when a task is stopped, in microseconds."""
    unreachable: UnreachablePolicy = UnreachablePolicy.MOVE
    clusters_allowed: tuple[str, ...] = ()
    """Empty: all of them."""
    clusters_forbidden: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    """Clusters that hold the job's data, best first: a preference, not a rule."""
    labels: tuple[str, ...] = ()
    """Labels that other jobs' affinities may name."""
    after: tuple[JobId, ...] = ()
    """Jobs that must succeed first."""
    client_id: str = ""
    """Submitter's own id of this submission: the same one twice gives the same job."""
    trace: str = ""
    """Submitter's W3C ``traceparent``: the job becomes part of that trace; empty: none."""
    together: Together = Together.CLUSTER
    """Part of a cluster in which a gang runs."""
    spread: str = ""
    """Attribute of nodes over the values of which a gang is spread; empty: none."""
    spread_max: int = 0
    """Tasks of a gang on the nodes of one value of ``spread``; 0: no bound, but as even as possible."""

    @property
    def task_count(self) -> int:
        """Number of tasks of the job."""
        return sum(group.count for group in self.groups)
