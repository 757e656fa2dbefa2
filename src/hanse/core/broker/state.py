"""State of a broker as one record: the content of its dump."""

from typing import Final

import msgspec

from hanse.core.broker.attempt_withdrawal import ExpectedStart
from hanse.core.broker.cluster_view import ViewState
from hanse.core.broker.demand_publisher import PublishedDemand
from hanse.core.broker.elastic.sizing import SizingState
from hanse.core.broker.end_acks import EndAcksState
from hanse.core.broker.failover.owned_shards import OwnedShardsState
from hanse.core.broker.failover.standby import StandbyShard
from hanse.core.broker.finish_estimates import EstimatesState
from hanse.core.broker.gossip import KnownMember
from hanse.core.broker.job_dependencies import EndedJob, JobQuery
from hanse.core.broker.job_table import JobRecord
from hanse.core.broker.queue import QueueLine
from hanse.core.messaging.link import NEVER, Link
from hanse.model.ids import JobId
from hanse.model.messages import Offer, QueueKey


class BrokerState(
    msgspec.Struct,
    rename={
        "known_members": "heard",
        "views": "sights",
        "published_demand": "registered",
        "spare_offers": "spare",
        "expected_starts": "expected",
        "ended_jobs": "ended",
        "owned_shards": "estates",
        "standby_shards": "wards",
        "takeover_count": "bids",
        "end_acks": "settling",
    },
):
    """State of a broker, as it is dumped."""

    epoch: int
    seed: int
    steps: int
    armed: int
    due: int
    post_due: int
    serial: int
    beat_at: int
    beat: int
    known_members: dict[str, KnownMember]
    jobs: dict[int, JobRecord]
    lines: dict[int, QueueLine]
    free_lines: list[int]
    views: list[ViewState]
    published_demand: list[PublishedDemand]
    best: dict[int, tuple[QueueKey, JobId]]
    offers: list[tuple[int, Offer, int]]
    spare_offers: list[tuple[int, Offer, int]]
    expected_starts: list[ExpectedStart]
    hold_at: dict[int, tuple[int, int]]
    ended_jobs: dict[int, EndedJob]
    clients: dict[str, int]
    watchers: dict[int, list[str]]
    unknown: dict[int, JobQuery]
    round: int
    deadlines: list[tuple[int, int]]
    tasks: int
    owned_shards: OwnedShardsState
    standby_shards: dict[str, StandbyShard]
    takeover_count: int
    end_acks: EndAcksState
    sizing: SizingState
    links: dict[str, Link]
    slice_at: int = NEVER
    estimates: EstimatesState | None = None


encode_state: Final = msgspec.msgpack.Encoder().encode
decode_state: Final = msgspec.msgpack.Decoder(BrokerState).decode
