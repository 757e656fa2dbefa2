"""All of a warden's state as one record, which is what its dump holds."""

from typing import Final

import msgspec

from hanse.core.messaging.link import Link
from hanse.core.warden.demand_table import Want
from hanse.core.warden.grants import Hold
from hanse.core.warden.ledger import Lease, Run
from hanse.core.warden.ownership import TenureRecord
from hanse.core.warden.runner_sessions import RunnerRecord
from hanse.model.drains import Drain
from hanse.model.ids import TaskId
from hanse.model.messages import End
from hanse.model.resources import Vector


class WardenState(msgspec.Struct):
    """All of a warden's state, as it is dumped."""

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
    runs: dict[int, Run]
    leases: dict[int, Lease]
    changed: dict[int, int]
    up: list[int]
    draining: list[int]
    withheld: dict[int, tuple[Vector, Vector]]
    hold: Hold | None
    preempt_at: int
    wants: list[Want]
    silent: dict[str, bool]
    told: dict[str, int]
    heard: dict[str, int]
    started: dict[str, list[tuple[TaskId, int, int]]]
    unsettled: dict[tuple[TaskId, int], tuple[str, End]]
    ended: dict[str, list[End]]
    runners: dict[str, RunnerRecord]
    forget_at: int
    estates: dict[str, TenureRecord]
    links: dict[str, Link]
    closed: dict[str, list[tuple[int, int]]] = {}
    drains: list[Drain] = []


encode_state: Final = msgspec.msgpack.Encoder().encode
decode_state: Final = msgspec.msgpack.Decoder(WardenState).decode
