"""The audit record of a choice: what was answered, why, and what else was considered.

One record per *change of answer*, not per attempt: a job that waits for an hour has one record that says so.
"""

from enum import StrEnum

import msgspec

from hanse.model.ids import Instant, JobId


class DecisionKind(StrEnum):
    """What a job was told."""

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
    """How much its elastic tasks are asked for."""
    GUARDED = "guarded"
    """The guard has put the network's advice for its kind aside."""
    ENDED = "ended"


class ConsideredCluster(msgspec.Struct, frozen=True, array_like=True):
    """One cluster in a choice: how many tasks it got, and why not more."""

    cluster: str
    tasks: int
    reason: str


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """An answer and its reasons."""

    at: Instant
    broker: str
    job: JobId
    group: int
    kind: DecisionKind
    tasks: int
    """How many tasks it is about."""
    reason: str
    considered: tuple[ConsideredCluster, ...] = ()
