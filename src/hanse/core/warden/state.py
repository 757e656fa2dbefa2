"""State of a warden as one record: the content of its dump."""

from typing import Final

import msgspec

from hanse.core.messaging.link import Link
from hanse.core.warden.demand_table import DemandEntry
from hanse.core.warden.grants import Hold
from hanse.core.warden.ownership import ShardOwnership
from hanse.core.warden.records import AttemptRecord, Lease
from hanse.core.warden.runner_sessions import RunnerRecord
from hanse.model.drains import Drain
from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd
from hanse.model.resources import Vector


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


encode_state: Final = msgspec.msgpack.Encoder().encode
decode_state: Final = msgspec.msgpack.Decoder(WardenState).decode
