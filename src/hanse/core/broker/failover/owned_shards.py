"""A broker's own shards as records: what must be told to whom before what may be said or forgotten."""

from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence, Sized

import msgspec

from hanse.core.broker.failover.end_columns import ends_in
from hanse.core.broker.job_table import OUTCOME_BY_STATE
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
    """A shard of this broker."""

    term: int
    standby: str
    accepted_terms: dict[str, int] = {}
    """Cluster -> term that its warden has accepted."""
    unsent_ends: list[tuple[TaskId, int, int]] = []
    """Ends that the standby has not been told of: task, state, attempt."""
    cancelled: list[JobId] = []
    forget: list[JobId] = []
    unsent_acks: list[tuple[str, TaskId, int]] = []
    """Ends to be settled (cluster, task, attempt) once the standby knows: not told yet."""
    publishing: list[tuple[int, int, int, int]] = []
    """Message number (-1: not told yet), task or job, attempt (-1: a job), state: what to make known, in
    order."""
    last_message: int = 0
    """Number, on the link to the standby, of the last message about this shard."""
    pending_acks: list[tuple[int, str, TaskId, int]] = []
    """Told to the standby by that message, waiting for its acknowledgement."""
    admitting: list[tuple[int, JobId]] = []
    disowned_by: dict[str, str] = {}
    """Cluster -> who owns this shard according to its warden, if not we."""
    jobs_left: int = 0
    """Of a shard that new jobs do not join: jobs that have not ended."""
    former_owner: str = ""
    """From whom it was adopted, as long as that one, or somebody before it, may not have let go."""
    copy_complete_message: int = 0
    """Number, on the link to a new standby, of the message that makes its copy whole; 0: it is known to
    be."""
    closed_at: dict[str, bool] = {}
    """Cluster -> whether its warden has closed the shard; clusters that were not asked are missing."""

    republishing: list[tuple[int, int, int, int, int]] = []
    """What is to be made known of many neighbours at once, of an adopted shard because its former owner may
    not have: message number (-1: not told yet), first task, attempt, state, and how many ended like it. Goes
    before ``publishing``."""
    republishing_columns: list[tuple[int, int, bytes, bytes]] = []
    """The same where neighbours ended in different ways: message number, and the column."""
    done_runs: list[tuple[TaskId, int, int, int]] = []
    """As ``unsent_ends``, of neighbours that ended alike: how many."""

    def settle_later(self, cluster: str, task: TaskId, attempt: int) -> bool:
        """The warden may forget an end when the standby knows what it led to; whether there is a standby."""
        if self.standby:
            self.unsent_acks.append((cluster, task, attempt))
        else:
            self.pending_acks.append((0, cluster, task, attempt))
        return bool(self.standby)

    def is_quiet(self) -> bool:
        """Whether nothing of it waits for anybody."""
        return not self.jobs_left and not self.admitting and not self.count_untold()

    def count_untold(self) -> int:
        """How much the standby, wardens and users have still to be told of it."""
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

    def next_republishing(self) -> int:
        """The message that must be safe before more of ``republishing`` is made known; NEVER: there is
        nothing."""
        runs = self.republishing[0][0] if self.republishing else NEVER
        columns = self.republishing_columns[0][0] if self.republishing_columns else NEVER
        return min(runs, columns) if runs >= 0 else columns

    def end_run(self, task: TaskId, state: int, count: int) -> None:
        """Neighbours have ended alike that never ran."""
        self.republishing.append((-1 if self.standby else 0, task, 0, state, count))
        if self.standby:
            self.done_runs.append((task, state, 0, count))

    def told(self, number: int) -> None:
        """All that has ended so far is in that message to the standby, or in one before it."""
        self.unsent_ends.clear()
        self.done_runs.clear()
        self.cancelled.clear()
        self.forget.clear()
        if self.unsent_acks:
            self.pending_acks += [(number, *entry) for entry in self.unsent_acks]
            self.unsent_acks.clear()
        for entries in (self.publishing, self.republishing):
            at = len(entries)
            while at and entries[at - 1][0] < 0:  # what was not told yet is at the end
                at -= 1
                entries[at] = (number, *entries[at][1:])

    def cover_republishing(self, number: int) -> None:
        """All of it is in that message to a new standby, too."""
        self.republishing = [(number, *entry[1:]) for entry in self.republishing]
        self.republishing_columns = [(number, *entry[1:]) for entry in self.republishing_columns]

    def take_republishing(self, safe: int, most: int, out: list[Effect]) -> int:
        """Make known what is next of ``republishing``: runs, or else one column. Of how many tasks it was."""
        if not self.republishing or not 0 <= self.republishing[0][0] <= safe:
            _, first, states, attempts = self.republishing_columns[0]
            if len(states) > most:
                return 0
            del self.republishing_columns[0]
            ends = ends_in((first, states, attempts))
            out += [
                TaskSettled(TaskId(task), attempt, OUTCOME_BY_STATE[state]) for task, state, attempt in ends
            ]
            return len(states)
        left = most
        while self.republishing and left and 0 <= self.republishing[0][0] <= safe:
            number, first, attempt, state, count = self.republishing.pop(0)
            part = min(count, left)
            left -= part
            out.append(settled(TaskId(first), attempt, state, part))
            if part < count:
                self.republishing.insert(0, (number, first + part, attempt, state, count - part))
        return most - left

    def leave_to(self, other: "OwnedShard", theirs: Container[JobId]) -> None:
        """An adopter has this shard. Another one of ours makes known what the adopter was told to forget,
        so that nobody else will: all but what concerns its jobs."""
        runs = [entry for entry in self.republishing if job_of(TaskId(entry[1])) not in theirs]
        columns = [entry for entry in self.republishing_columns if job_of(TaskId(entry[1])) not in theirs]
        rest = [entry for entry in self.publishing if _job(entry) not in theirs]
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
    """A shard that was adopted from us before its former owner had let go: who must hear when it has."""

    shard: ShardId
    term: int
    """Ours, when we owned it."""
    former_owner: str
    """From whom we had it."""
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
    """All of it, as it is dumped."""

    generation: int
    owned: dict[ShardId, OwnedShard]
    transferred: dict[ShardId, str]
    """Shards that peers have adopted from us, oldest first; ``TRANSFERRED_MAX`` of them are remembered."""
    transferred_jobs: dict[JobId, bool]
    """Jobs that an adopter has taken, oldest first; as many as ended jobs are remembered."""
    progress_at: int
    pending_releases: list[PendingRelease] = []
    doubtful: dict[JobId, dict[str, bool]] = {}
    """Jobs that may have been submitted elsewhere meanwhile -> peers that were asked, and whether they have
    said that they do not know it."""
    new_owners: dict[JobId, str] = {}
    """Who has taken each of ``transferred_jobs``."""

    def transfer(self, jobs: Sequence[JobId], new_owner: str, most: int) -> None:
        """An adopter has taken jobs; ``most`` of all such are remembered."""
        for job in jobs:
            self.take_back(job)
            self.transferred_jobs[job], self.new_owners[job] = True, new_owner
        while len(self.transferred_jobs) > most:
            self.take_back(next(iter(self.transferred_jobs)))

    def take_back(self, job: JobId) -> None:
        """A job is no longer one that somebody has taken."""
        self.transferred_jobs.pop(job, None)
        self.new_owners.pop(job, None)


class UnreplicatedEnds:
    """What the standbys of a broker's shards do not know for certain yet."""

    def __init__(self, shards: Iterable[OwnedShard]) -> None:
        self.ends: set[tuple[TaskId, int]] = set()
        """Ends that are settled when the standby knows of them, and so not when a warden tells them again."""
        self.tasks: dict[int, OwnedShard] = {}
        """Tasks that are over. If the standby took over now and nobody knew an attempt of one, it would start
        it; so until it knows, wardens keep the ends of all its attempts."""
        self.runs: list[tuple[int, int, OwnedShard]] = []
        """The same of neighbours: the first, the one behind the last."""
        for owned in shards:
            self.ends.update((task, attempt) for _, task, attempt in owned.unsent_acks)
            self.ends.update((task, attempt) for _, _, task, attempt in owned.pending_acks)
            self.tasks.update((task, owned) for _, task, attempt, _ in owned.publishing if attempt >= 0)
            self.runs += [(first, first + count, owned) for _, first, _, _, count in owned.republishing]
        self.runs.sort(key=lambda run: run[0])

    def owner_of(self, task: TaskId) -> OwnedShard | None:
        """Of which shard a task is over."""
        found = self.tasks.get(task)
        if found is None and self.runs:
            at = bisect_right(self.runs, int(task), key=lambda run: run[0]) - 1
            if at >= 0 and task < self.runs[at][1]:
                return self.runs[at][2]
        return found


def new_owned_shard(term: int, standby: str) -> OwnedShard:
    """A shard of which nothing is known yet."""
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
    )
    owned.done_runs = []
    return owned


def settled(task: TaskId, attempt: int, state: int, count: int) -> Effect:
    """What makes known how neighbours have ended."""
    outcome = OUTCOME_BY_STATE[state]
    if count == 1:
        return TaskSettled(task, attempt, outcome)
    return TasksSettled(task, attempt, outcome, count)


def _job(entry: tuple[int, int, int, int]) -> JobId:
    """The job that something to be made known is about."""
    _, subject, attempt, _ = entry
    return JobId(subject) if attempt < 0 else job_of(TaskId(subject))
