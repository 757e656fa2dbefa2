"""Audit record of a decision: its kind, its reason, and the alternatives.

One record per *change of decision*, not per attempt: a job that waits for an hour has one record of it.
"""

from enum import StrEnum

import msgspec

from hanse.model.ids import Instant, JobId


class DecisionKind(StrEnum):
    """Kind of a decision about a group."""

    ACCEPTED = "accepted"
    BLOCKED = "blocked"
    """It waits for other work to succeed first."""
    WAITING = "waiting"
    """It waits for room."""
    PLACED = "placed"
    MOVED = "moved"
    """Its attempt was lost, preempted or given up, and it waits again."""
    RETRIED = "retried"
    SIZED = "sized"
    """The ask of its elastic tasks was chosen."""
    GUARDED = "guarded"
    """The guard has suspended the network's advice for its kind."""
    ENDED = "ended"


class ConsideredCluster(msgspec.Struct, frozen=True, array_like=True):
    """Cluster in a decision: the number of tasks it got, and why not more."""

    cluster: str
    tasks: int
    reason: str


class DecisionRecord(msgspec.Struct, frozen=True, array_like=True):
    """Decision and its reasons."""

    at: Instant
    broker: str
    job: JobId
    group: int
    kind: DecisionKind
    tasks: int
    """Number of tasks concerned."""
    reason: str
    considered: tuple[ConsideredCluster, ...] = ()
