"""All of a broker's state as one record, which is what its dump holds."""

from typing import Final

import msgspec

from hanse.core.broker.cluster_view import Sight
from hanse.core.broker.demand_publisher import Registered
from hanse.core.broker.elastic.sizing import SizingState
from hanse.core.broker.end_acks import SettlingState
from hanse.core.broker.failover.owned_shards import EstatesState
from hanse.core.broker.failover.standby import Ward
from hanse.core.broker.job_lifecycle import Asked
from hanse.core.broker.job_table import JobRecord
from hanse.core.broker.large_cancellation import Ended
from hanse.core.broker.membership import Heard
from hanse.core.broker.placement import Expected
from hanse.core.broker.queue import Line
from hanse.core.messaging.link import NEVER, Link
from hanse.model.ids import JobId
from hanse.model.messages import Key, Offer


class BrokerState(msgspec.Struct):
    """All of a broker's state, as it is dumped."""

    epoch: int
    seed: int
    steps: int
    armed: int
    due: int
    post_due: int
    serial: int
    beat_at: int
    beat: int
    heard: dict[str, Heard]
    jobs: dict[int, JobRecord]
    lines: dict[int, Line]
    free_lines: list[int]
    sights: list[Sight]
    registered: list[Registered]
    best: dict[int, tuple[Key, JobId]]
    offers: list[tuple[int, Offer, int]]
    spare: list[tuple[int, Offer, int]]
    expected: list[Expected]
    hold_at: dict[int, tuple[int, int]]
    ended: dict[int, Ended]
    clients: dict[str, int]
    watchers: dict[int, list[str]]
    unknown: dict[int, Asked]
    round: int
    deadlines: list[tuple[int, int]]
    tasks: int
    estates: EstatesState
    wards: dict[str, Ward]
    bids: int
    settling: SettlingState
    sizing: SizingState
    links: dict[str, Link]
    slice_at: int = NEVER


encode_state: Final = msgspec.msgpack.Encoder().encode
decode_state: Final = msgspec.msgpack.Decoder(BrokerState).decode
