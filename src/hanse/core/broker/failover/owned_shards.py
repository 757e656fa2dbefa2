"""Records of a broker's own shards: what the standby, wardens and users have still to be told."""

from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence, Sized

import msgspec

from hanse.core.broker.failover.end_columns import ends_in
from hanse.core.broker.failover.terms import takeover_count
from hanse.core.broker.job_table import OUTCOME_BY_STATE, JobRecord
from hanse.core.messaging.link import NEVER
from hanse.model.effects import Effect, TaskSettled, TasksSettled
from hanse.model.ids import JobId, TaskId, job_of
from hanse.model.messages import ShardId


class OwnedShard(
    msgspec.Struct,
    gc=False,
    rename={
        "standby": "heir",
        "accepted_terms": "accepted",
        "unsent_ends": "done",
        "unsent_acks": "unsent",
        "pending_acks": "settling",
        "last_message": "covered",
        "disowned_by": "lost_to",
        "former_owner": "former",
        "copy_complete_message": "copied",
        "closed_at": "closing",
        "republishing": "again",
        "jobs_left": "left",
    },
):
    """Shard that this broker owns."""

    term: int
    standby: str
    accepted_terms: dict[str, int] = {}
    """Cluster -> term that its warden has accepted."""
    unsent_ends: list[tuple[TaskId, int, int]] = []
    """Ends not yet sent to the standby: task, state, attempt."""
    cancelled: list[JobId] = []
    forget: list[JobId] = []
    unsent_acks: list[tuple[str, TaskId, int]] = []
    """Ends to be acknowledged when the standby knows them (cluster, task, attempt): not yet sent."""
    publishing: list[tuple[int, int, int, int]] = []
    """Ends to be published, in order: message number (-1: not yet sent to the standby), task or job, attempt
    (-1: job), state."""
    last_message: int = 0
    """Number, on the link to the standby, of the last message about this shard."""
    pending_acks: list[tuple[int, str, TaskId, int]] = []
    """Ends that this message to the standby contains, waiting for its acknowledgement."""
    admitting: list[tuple[int, JobId]] = []
    disowned_by: dict[str, str] = {}
    """Cluster -> owner of this shard according to its warden, if it is another broker."""
    jobs_left: int = 0
    """Unended jobs of a shard that new jobs do not join."""
    former_owner: str = ""
    """Broker from which it was taken over, until that one and all owners before have released it."""
    copy_complete_message: int = 0
    """Number, on the link to a new standby, of the message that completes its copy; 0: known to be
    complete."""
    closed_at: dict[str, bool] = {}
    """Cluster -> True if its warden has closed the shard; clusters that were not asked are missing."""

    republishing: list[tuple[int, int, int, int, int]] = []
    """Runs of ends to be published before ``publishing``: ends of a taken shard, which the former owner may
    not have published, and of neighbours that never ran. Message number (-1: not yet sent), first task,
    attempt, state, count."""
    republishing_columns: list[tuple[int, int, bytes, bytes]] = []
    """Columns of ends to be published, where neighbours ended differently: message number, and the column."""
    done_runs: list[tuple[TaskId, int, int, int]] = []
    """Runs of neighbours that ended alike, not yet sent to the standby: task, state, attempt, count."""
    agreed_version: int = 0
    """Version of the league file by which every warden has agreed to the takeover of this shard."""

    abandoned_at: dict[str, bool] = {}
    """Clusters of ``disowned_by`` whose owner of this shard has retired and never acted there."""
    disowned_number: int = 0
    """Highest number of takeovers that a warden which has another owner has told."""
    skipped_count: int = 0
    """Takeovers that the term counts and that did not happen: each reclaim skips the numbers of the takeover
    that was abandoned and of its own."""

    @property
    def takeover_number(self) -> int:
        """Number of takeovers of the shard up to the one by which we became its owner."""
        return takeover_count(self.term) - self.skipped_count

    def is_unknown_to(self, cluster: str, since: int) -> bool:
        """True if the warden of a cluster that joined in version ``since`` may take a former owner of this
        shard for its owner: it was not asked at the takeover, and has not answered a registration."""
        is_taken_over = takeover_count(self.term) > 0
        is_informed = cluster in self.accepted_terms or cluster in self.disowned_by
        return is_taken_over and since > self.agreed_version and not is_informed

    def is_quiet(self) -> bool:
        """True if no job and no unsent entry of the shard is left."""
        return not self.jobs_left and not self.admitting and not self.count_unsent()

    def count_unsent(self) -> int:
        """Count what the standby, wardens and users have still to be told of the shard."""
        waits: tuple[Sized, ...] = (
            self.unsent_ends,
            self.cancelled,
            self.forget,
            self.unsent_acks,
            self.publishing,
            self.pending_acks,
            self.republishing,
            self.republishing_columns,
            self.done_runs,
        )
        return sum(map(len, waits))

    def is_republishing(self) -> bool:
        """True if something waits to be published before ``publishing``."""
        return bool(self.republishing or self.republishing_columns)

    def next_republishing(self) -> int:
        """Return the message that must be safe before more of ``republishing`` is published; NEVER: none."""
        runs = self.republishing[0][0] if self.republishing else NEVER
        columns = self.republishing_columns[0][0] if self.republishing_columns else NEVER
        return min(runs, columns) if runs >= 0 else columns

    def add_end_run(self, task: TaskId, state: int, count: int) -> None:
        """Add a run of neighbours that ended alike and never ran."""
        self.republishing.append((-1 if self.standby else 0, task, 0, state, count))
        if self.standby:
            self.done_runs.append((task, state, 0, count))

    def mark_sent(self, number: int) -> None:
        """Note that this message to the standby, or an earlier one, contains all ends so far."""
        self.unsent_ends.clear()
        self.done_runs.clear()
        self.cancelled.clear()
        self.forget.clear()
        if self.unsent_acks:
            self.pending_acks += [(number, *entry) for entry in self.unsent_acks]
            self.unsent_acks.clear()
        for entries in (self.publishing, self.republishing):
            at = len(entries)
            while at and entries[at - 1][0] < 0:  # unsent entries are at the end
                at -= 1
                entries[at] = (number, *entries[at][1:])

    def cover_republishing(self, number: int) -> None:
        """Note that this message to a new standby contains all of ``republishing``, too."""
        self.republishing = [(number, *entry[1:]) for entry in self.republishing]
        self.republishing_columns = [(number, *entry[1:]) for entry in self.republishing_columns]

    def take_republishing(self, safe: int, most: int, effects: list[Effect]) -> int:
        """Publish the next of ``republishing``: runs, or else one column. Return the number of tasks."""
        if not self.republishing or not 0 <= self.republishing[0][0] <= safe:
            _, first, states, attempts = self.republishing_columns[0]
            if len(states) > most:
                return 0
            del self.republishing_columns[0]
            ends = ends_in((first, states, attempts))
            effects += [
                TaskSettled(TaskId(task), attempt, OUTCOME_BY_STATE[state]) for task, state, attempt in ends
            ]
            return len(states)
        left = most
        while self.republishing and left and 0 <= self.republishing[0][0] <= safe:
            number, first, attempt, state, count = self.republishing.pop(0)
            part = min(count, left)
            left -= part
            effects.append(settled_effect(TaskId(first), attempt, state, part))
            if part < count:
                self.republishing.insert(0, (number, first + part, attempt, state, count - part))
        return most - left

    def move_unpublished_to(self, other: "OwnedShard", transferred_jobs: Container[JobId]) -> None:
        """Move what is unpublished to another own shard, except for the jobs that the new owner has. The new
        owner was told to forget the rest, so no other broker will publish it."""
        runs = [entry for entry in self.republishing if job_of(TaskId(entry[1])) not in transferred_jobs]
        columns = [
            entry for entry in self.republishing_columns if job_of(TaskId(entry[1])) not in transferred_jobs
        ]
        rest = [entry for entry in self.publishing if _job_of_entry(entry) not in transferred_jobs]
        other.republishing[:0] = [(0, *entry[1:]) for entry in runs]
        other.republishing_columns[:0] = [(0, *entry[1:]) for entry in columns]
        other.publishing[:0] = [(0, *entry[1:]) for entry in rest]


class PendingRelease(
    msgspec.Struct,
    frozen=True,
    rename={
        "shard": "estate",
        "former_owner": "former",
        "new_owner": "adopter",
        "new_owner_term": "adopter_term",
    },
):
    """Release owed to a new owner: it took the shard over before our own former owner had released it."""

    shard: ShardId
    term: int
    """Term that tells which takeover made us the owner."""
    former_owner: str
    """Broker from which we took the shard over."""
    new_owner: str
    new_owner_term: int


class OwnedShardsState(
    msgspec.Struct,
    rename={
        "transferred": "given",
        "transferred_jobs": "given_jobs",
        "new_owners": "takers",
        "pending_releases": "owing",
    },
):
    """State of all own shards, as it is dumped."""

    generation: int
    owned: dict[ShardId, OwnedShard]
    transferred: dict[ShardId, str]
    """Shards that peers have taken over from us, oldest first; ``TRANSFERRED_MAX`` are remembered."""
    transferred_jobs: dict[JobId, bool]
    """Jobs that a new owner has taken, oldest first; as many as ended jobs are remembered."""
    progress_at: int
    pending_releases: list[PendingRelease] = []
    doubtful: dict[JobId, dict[str, bool]] = {}
    """Jobs that may be elsewhere, too -> peers that were asked, True if the peer does not know the job."""
    new_owners: dict[JobId, str] = {}
    """Owner of each of ``transferred_jobs``."""
    orphaned: dict[JobId, dict[str, bool]] = {}
    """Jobs of which nobody will tell us -> peers that do not know the job; see ``orphaned_jobs``."""

    def record_transfer(self, jobs: Sequence[JobId], new_owner: str, most: int) -> None:
        """Record that a new owner has jobs; remember ``most`` of all such jobs."""
        for job in jobs:
            self.forget_transfer(job)
            self.transferred_jobs[job], self.new_owners[job] = True, new_owner
        while len(self.transferred_jobs) > most:
            self.forget_transfer(next(iter(self.transferred_jobs)))

    def forget_transfer(self, job: JobId) -> None:
        """Drop the record that another broker has taken a job."""
        self.transferred_jobs.pop(job, None)
        self.new_owners.pop(job, None)

    def fill(self, saved: "OwnedShardsState") -> None:
        """Take every field from a dumped state."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(saved, name))


class OwnedShards:
    """Own shards of one broker: the state that is dumped, and what follows from it."""

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.state = OwnedShardsState(0, {}, {}, {}, NEVER, [], {}, {}, {})
        """One record permanently: parts may keep it, because ``restore`` only fills it."""
        self.ids: tuple[ShardId, ...] = ()
        """Ids of the owned shards, as the reply to every warden's heartbeat carries them."""
        self.needs_release = True
        """True if something may be releasable: an entry was added, or an acknowledgement has come."""

    @property
    def base_shard(self) -> ShardId:
        """Shard that newly submitted jobs join."""
        return f"{self.broker}#{self.state.generation}"

    def add(self, shard: ShardId, owned: OwnedShard) -> OwnedShard:
        """Add a shard, and return its record."""
        self.state.owned[shard] = owned
        self.ids = tuple(self.state.owned)
        return owned

    def remove(self, shard: ShardId) -> OwnedShard | None:
        """Remove a shard, and return its record if it was owned."""
        owned = self.state.owned.pop(shard, None)
        self.ids = tuple(self.state.owned)
        return owned

    def on_firm_ack(self) -> None:
        """Note that a peer has confirmed more messages, if anything of a shard waits for a confirmation."""
        for owned in self.state.owned.values():
            waits = owned.publishing or owned.admitting or owned.pending_acks or owned.copy_complete_message
            if waits or owned.is_republishing():
                self.needs_release = True
                return

    def admit_again(self, records: list[JobRecord]) -> None:
        """Queue doubtful jobs for admission again after a reply."""
        queued_jobs = {job for owned in self.state.owned.values() for _, job in owned.admitting}
        for record in records:
            owned = self.state.owned.get(record.shard)
            if owned is not None and record.id not in queued_jobs:
                owned.admitting.append((owned.last_message if owned.standby else 0, record.id))
                self.needs_release = True

    def restore(self, saved: OwnedShardsState) -> None:
        """Restore a dumped state."""
        self.state.fill(saved)
        self.ids = tuple(self.state.owned)
        self.needs_release = True

    def check(self) -> None:
        """Assert that the list of ids matches the owned shards."""
        assert self.ids == tuple(self.state.owned), f"{self.ids} are not {list(self.state.owned)}"


class UnreplicatedEnds:
    """Ends that the standbys of a broker's shards do not know for certain yet."""

    def __init__(self, shards: Iterable[OwnedShard]) -> None:
        self.ends: set[tuple[TaskId, int]] = set()
        """Ends that are acknowledged when the standby knows them, not when a warden repeats them."""
        self.tasks: dict[int, OwnedShard] = {}
        """Tasks that have ended. If the standby took over now and no warden knew an attempt of such a task,
        it would start the task. So wardens keep the ends of all its attempts until the standby knows."""
        self.runs: list[tuple[int, int, OwnedShard]] = []
        """Runs of neighbours that have ended: the first, the one behind the last."""
        for owned in shards:
            self.ends.update((task, attempt) for _, task, attempt in owned.unsent_acks)
            self.ends.update((task, attempt) for _, _, task, attempt in owned.pending_acks)
            self.tasks.update((task, owned) for _, task, attempt, _ in owned.publishing if attempt >= 0)
            self.runs += [(first, first + count, owned) for _, first, _, _, count in owned.republishing]
        self.runs.sort(key=lambda run: run[0])

    def find_shard(self, task: TaskId) -> OwnedShard | None:
        """Return the shard of an ended task that the standby may not know; None otherwise."""
        found = self.tasks.get(task)
        if found is None and self.runs:
            at = bisect_right(self.runs, int(task), key=lambda run: run[0]) - 1
            if at >= 0 and task < self.runs[at][1]:
                return self.runs[at][2]
        return found


def new_owned_shard(term: int, standby: str) -> OwnedShard:
    """Create the record of a shard without jobs."""
    owned = OwnedShard(
        term,
        standby,
        {},
        [],
        [],
        [],
        [],
        [],
        0,
        [],
        [],
        {},
        closed_at={},
        republishing=[],
        republishing_columns=[],
        abandoned_at={},
    )
    owned.done_runs = []
    return owned


def settled_effect(task: TaskId, attempt: int, state: int, count: int) -> Effect:
    """Return the effect that publishes how neighbours have ended."""
    outcome = OUTCOME_BY_STATE[state]
    if count == 1:
        return TaskSettled(task, attempt, outcome)
    return TasksSettled(task, attempt, outcome, count)


def _job_of_entry(entry: tuple[int, int, int, int]) -> JobId:
    """Return the job of an entry of ``publishing``."""
    _, subject, attempt, _ = entry
    return JobId(subject) if attempt < 0 else job_of(TaskId(subject))
