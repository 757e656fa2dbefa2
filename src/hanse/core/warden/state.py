"""State of a warden as one record, which is the content of its dump, and the parts that it comes from."""

from typing import Final, NamedTuple

import msgspec

from hanse.core.messaging.link import Link, LinkSet
from hanse.core.warden.attempts import WardenAttempts
from hanse.core.warden.demand_table import DemandEntry
from hanse.core.warden.drains import Drains
from hanse.core.warden.grants import Grants, Hold
from hanse.core.warden.ledger import Ledger
from hanse.core.warden.ledger_records import AttemptRecord, Lease
from hanse.core.warden.ownership import Ownership, ShardOwnership
from hanse.core.warden.runner_sessions import RunnerRecord, RunnerSessions
from hanse.core.warden.state_publisher import StatePublisher
from hanse.core.warden.step_random import StepRandom
from hanse.model.drains import Drain
from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd
from hanse.model.resources import Vector
from hanse.policy.node_columns import mask_indices


class WardenState(
    msgspec.Struct,
    rename={
        "attempts": "runs",
        "demand": "wants",
        "sent_versions": "told",
        "last_heard": "heard",
        "unacked_ends": "unsettled",
        "shards": "estates",
        "closed_shards": "closed",
    },
):
    """State of a warden, as it is dumped."""

    epoch: int
    seed: int
    steps: int
    armed: int
    due: int
    seen: int
    post_due: int
    beat_at: int
    delta_at: int
    news_at: int
    version: int
    next_lease: int
    attempts: dict[int, AttemptRecord]
    leases: dict[int, Lease]
    changed: dict[int, int]
    up: list[int]
    draining: list[int]
    withheld: dict[int, tuple[Vector, Vector]]
    hold: Hold | None
    preempt_at: int
    demand: list[DemandEntry]
    silent: dict[str, bool]
    sent_versions: dict[str, int]
    last_heard: dict[str, int]
    started: dict[str, list[tuple[TaskId, int, int]]]
    unacked_ends: dict[tuple[TaskId, int], tuple[str, AttemptEnd]]
    ended: dict[str, list[AttemptEnd]]
    runners: dict[str, RunnerRecord]
    forget_at: int
    shards: dict[str, ShardOwnership]
    links: dict[str, Link]
    closed_shards: dict[str, list[tuple[int, int]]] = {}
    drains: list[Drain] = []


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(WardenState).decode


class WardenParts(NamedTuple):
    """Parts of a warden that have state."""

    ledger: Ledger
    drains: Drains
    grants: Grants
    sessions: RunnerSessions
    ownership: Ownership
    attempts: WardenAttempts
    links: LinkSet
    publisher: StatePublisher
    random: StepRandom


def dump_parts(parts: WardenParts, wake_at: int, due: int, last_heard: dict[str, int]) -> bytes:
    """Return the state of a warden's parts, with its own: the wake-up that it asked for, the next due time,
    and when it last heard from each broker."""
    ledger, grants, attempts, publisher = parts.ledger, parts.grants, parts.attempts, parts.publisher
    state = WardenState(
        epoch=publisher.epoch,
        seed=parts.random.seed,
        steps=parts.random.steps,
        armed=wake_at,
        due=due,
        seen=publisher.checked_version,
        post_due=parts.links.due,
        beat_at=publisher.beat_at,
        delta_at=publisher.delta_at,
        news_at=attempts.starts_due,
        version=ledger.version,
        next_lease=ledger.next_lease,
        attempts=ledger.attempts,  # type: ignore[arg-type]  # a task id is a number
        leases=ledger.leases,
        changed=ledger.changed,
        up=mask_indices(ledger.up, ledger.nodes),
        draining=mask_indices(ledger.draining, ledger.nodes),
        withheld=ledger.withheld,
        hold=grants.hold,
        preempt_at=grants.preempt_at,
        demand=grants.demand.entries,
        silent=grants.silent_brokers,
        sent_versions=publisher.sent_versions,
        last_heard=last_heard,
        started=attempts.pending_starts,
        unacked_ends=attempts.unacked_ends.by_attempt,
        ended=attempts.pending_ends,
        runners=parts.sessions.runners,
        forget_at=parts.sessions.forget_at,
        shards=parts.ownership.shards,
        links=parts.links.links,
        closed_shards=parts.ownership.closed_generations,
        drains=parts.drains.active,
    )
    return _encode(state)


def restore_parts(parts: WardenParts, state: bytes) -> tuple[int, int, dict[str, int]]:
    """Replace the state of a warden's parts by a dumped one; return what ``dump_parts`` got beside them."""
    saved = _decode(state)
    ledger, grants, attempts, publisher = parts.ledger, parts.grants, parts.attempts, parts.publisher
    parts.random.seed, parts.random.steps = saved.seed, saved.steps
    ledger.restore(saved.attempts, saved.leases, saved.up, saved.draining, saved.withheld)  # type: ignore[arg-type]
    parts.drains.restore(saved.drains)
    ledger.next_lease = saved.next_lease
    ledger.restore_versions(saved.version, saved.changed, saved.hold.nodes if saved.hold else ())
    publisher.epoch, publisher.sent_versions = saved.epoch, saved.sent_versions
    publisher.beat_at, publisher.delta_at = saved.beat_at, saved.delta_at
    publisher.checked_version = saved.seen
    grants.hold, grants.preempt_at, grants.silent_brokers = saved.hold, saved.preempt_at, saved.silent
    grants.demand.restore(saved.demand)
    attempts.starts_due, attempts.pending_starts = saved.news_at, saved.started
    attempts.pending_ends, attempts.unacked_ends.by_attempt = saved.ended, saved.unacked_ends
    parts.sessions.restore(saved.runners, saved.forget_at)
    parts.ownership.restore(saved.shards, saved.closed_shards)
    parts.links.restore(saved.links, saved.post_due)
    return saved.armed, saved.due, saved.last_heard
