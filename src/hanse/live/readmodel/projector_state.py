"""What the projector must remember from batch to batch besides the jobs; stored with every batch."""

import msgspec

from hanse.core.messaging.link import Link
from hanse.model.ids import JobId, TaskId
from hanse.model.job import JobSpec
from hanse.model.messages import AttemptEnd, ShardId


class Pending(msgspec.Struct):
    """A submission that has no reply yet."""

    client: str
    request: int
    spec: JobSpec
    submitted: int


class WardNote(msgspec.Struct):
    """A shard of which this broker is the standby."""

    owner: str
    term: int


class Bid(msgspec.Struct):
    """A try at adopting a shard, with what the wardens have said of it so far."""

    number: int
    running: list[tuple[str, TaskId, int]] = []
    ends: list[tuple[str, AttemptEnd]] = []


class Memory(msgspec.Struct):
    """All of it. Times are moments."""

    clusters: list[str] = []
    """Names by number: in the order in which this broker first used them."""
    links: dict[str, Link] = {}
    """How far each peer's messages have been taken: a mirror of the receiving side of the machine's own."""
    sent: dict[str, int] = {}
    """Number of the last message sent to each peer: one that is repeated says nothing new."""
    pending: list[Pending] = []
    base: ShardId = ""
    """The shard that new jobs join."""
    owned: dict[ShardId, bool] = {}
    wards: dict[ShardId, WardNote] = {}
    bids: dict[ShardId, Bid] = {}
    newest: int = -1
    """The highest number among the jobs that were accepted here."""
    strangers: dict[int, bool] = {}
    """Numbers of the brokers that first accepted the jobs adopted here."""
    unseen: dict[JobId, int] = {}
    """Jobs that ended before anybody was told that they were accepted, and how; the latest ones."""
    changes: int = 0
    """Rows kept of each."""
    ended: int = 0
    durations: int = 0
    dropped_changes: int = 0
    """The highest serial of a job's change that is no longer on record; 0: all that ever were."""
    dropped_decisions: int = 0
