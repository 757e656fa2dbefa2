"""State of the projector besides the jobs; stored with every batch."""

import msgspec

from hanse.core.messaging.link import Link
from hanse.model.ids import JobId, TaskId
from hanse.model.job import JobSpec
from hanse.model.messages import AttemptEnd, ShardId


class PendingSubmission(msgspec.Struct):
    """Submission without a reply."""

    client: str
    request: int
    spec: JobSpec
    submitted: int


class StandbyNote(msgspec.Struct):
    """Owner and term of a shard of which this broker is the standby."""

    owner: str
    term: int


class PendingTakeover(msgspec.Struct):
    """Takeover of a shard in progress, with the attempts that the wardens have reported so far."""

    number: int
    running: list[tuple[str, TaskId, int]] = []
    ends: list[tuple[str, AttemptEnd]] = []


class ProjectorState(msgspec.Struct):
    """State of the projector. Times are moments."""

    clusters: list[str] = []
    """Cluster names by number, in the order in which this broker first used them."""
    links: dict[str, Link] = {}
    """Receiving side of the link to each peer: a mirror of the links of the machine."""
    sent: dict[str, int] = {}
    """Number of the last message sent to each peer: a repeated message is ignored."""
    pending: list[PendingSubmission] = []
    base: ShardId = ""
    """Shard that new jobs join."""
    owned: dict[ShardId, bool] = {}
    wards: dict[ShardId, StandbyNote] = {}
    bids: dict[ShardId, PendingTakeover] = {}
    newest: int = -1
    """Highest number of a job that this broker has accepted."""
    strangers: dict[int, bool] = {}
    """Numbers of the brokers that first accepted the jobs that this broker has taken over."""
    orphaned: dict[JobId, bool] = {}
    """Own jobs that this broker asks its peers about; see ``core.broker.failover.orphaned_jobs``."""
    unseen: dict[JobId, int] = {}
    """Terminal states of jobs that ended before their acceptance was published; the latest ones."""
    changes: int = 0
    """Number of rows of state changes."""
    ended: int = 0
    durations: int = 0
    dropped_changes: int = 0
    """Highest serial of a dropped state change; 0: none was dropped."""
    dropped_decisions: int = 0
