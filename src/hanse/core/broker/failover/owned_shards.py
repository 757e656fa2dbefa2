"""A broker's own estates as records: what must be told to whom before what may be said or forgotten."""

from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence, Sized

import msgspec

from hanse.core.broker.failover.end_columns import ends_in
from hanse.core.broker.job_table import OUTCOMES
from hanse.core.messaging.link import NEVER
from hanse.model.effects import Command, TaskSettled, TasksSettled
from hanse.model.ids import JobId, TaskId, job_of
from hanse.model.messages import EstateId


class Owned(msgspec.Struct, gc=False):
    """An estate of this broker."""

    term: int
    heir: str
    accepted: dict[str, int] = {}
    """Cluster -> term that its warden has accepted."""
    done: list[tuple[TaskId, int, int]] = []
    """Ends that the heir has not been told of: task, state, attempt."""
    cancelled: list[JobId] = []
    forget: list[JobId] = []
    unsent: list[tuple[str, TaskId, int]] = []
    """Ends to be settled (cluster, task, attempt) once the heir knows: not told yet."""
    publishing: list[tuple[int, int, int, int]] = []
    """Message number (-1: not told yet), task or job, attempt (-1: a job), state: what to make known, in
    order."""
    covered: int = 0
    """Number, on the link to the heir, of the last message about this estate."""
    settling: list[tuple[int, str, TaskId, int]] = []
    """Told to the heir by that message, waiting for its acknowledgement."""
    admitting: list[tuple[int, JobId]] = []
    lost_to: dict[str, str] = {}
    """Cluster -> who owns this estate according to its warden, if not we."""
    left: int = 0
    """Of an estate that new jobs do not join: jobs that have not ended."""
    former: str = ""
    """From whom it was adopted, as long as that one, or somebody before it, may not have let go."""
    copied: int = 0
    """Number, on the link to a new heir, of the message that makes its copy whole; 0: it is known to be."""
    closing: dict[str, bool] = {}
    """Cluster -> whether its warden has closed the estate; clusters that were not asked are missing."""

    again: list[tuple[int, int, int, int, int]] = []
    """What is to be made known of many neighbours at once, of an adopted estate because its former owner may
    not have: message number (-1: not told yet), first task, attempt, state, and how many ended like it. Goes
    before ``publishing``."""
    again_columns: list[tuple[int, int, bytes, bytes]] = []
    """The same where neighbours ended in different ways: message number, and the column."""
    done_runs: list[tuple[TaskId, int, int, int]] = []
    """As ``done``, of neighbours that ended alike: how many."""

    def settle_later(self, cluster: str, task: TaskId, attempt: int) -> bool:
        """The warden may forget an end when the heir knows what it led to; whether there is an heir."""
        if self.heir:
            self.unsent.append((cluster, task, attempt))
        else:
            self.settling.append((0, cluster, task, attempt))
        return bool(self.heir)

    def quiet(self) -> bool:
        """Whether nothing of it waits for anybody."""
        return not self.left and not self.admitting and not self.untold()

    def untold(self) -> int:
        """How much the heir, wardens and users have still to be told of it."""
        waits: tuple[Sized, ...] = (
            self.done, self.cancelled, self.forget, self.unsent, self.publishing, self.settling, self.again,
            self.again_columns, self.done_runs,
        )  # fmt: skip
        return sum(map(len, waits))

    def next_again(self) -> int:
        """The message that must be safe before more of ``again`` is made known; NEVER: there is nothing."""
        runs = self.again[0][0] if self.again else NEVER
        columns = self.again_columns[0][0] if self.again_columns else NEVER
        return min(runs, columns) if runs >= 0 else columns

    def end_run(self, task: TaskId, state: int, count: int) -> None:
        """Neighbours have ended alike that never ran."""
        self.again.append((-1 if self.heir else 0, task, 0, state, count))
        if self.heir:
            self.done_runs.append((task, state, 0, count))

    def told(self, number: int) -> None:
        """All that has ended so far is in that message to the heir, or in one before it."""
        self.done.clear()
        self.done_runs.clear()
        self.cancelled.clear()
        self.forget.clear()
        if self.unsent:
            self.settling += [(number, *entry) for entry in self.unsent]
            self.unsent.clear()
        for entries in (self.publishing, self.again):
            at = len(entries)
            while at and entries[at - 1][0] < 0:  # what was not told yet is at the end
                at -= 1
                entries[at] = (number, *entries[at][1:])

    def cover_again(self, number: int) -> None:
        """All of it is in that message to a new heir, too."""
        self.again = [(number, *entry[1:]) for entry in self.again]
        self.again_columns = [(number, *entry[1:]) for entry in self.again_columns]

    def take_again(self, safe: int, most: int, out: list[Command]) -> int:
        """Make known what is next of ``again``: runs, or else one column. Of how many tasks it was."""
        if not self.again or not 0 <= self.again[0][0] <= safe:
            _, first, states, attempts = self.again_columns[0]
            if len(states) > most:
                return 0
            del self.again_columns[0]
            ends = ends_in((first, states, attempts))
            out += [TaskSettled(TaskId(task), attempt, OUTCOMES[state]) for task, state, attempt in ends]
            return len(states)
        left = most
        while self.again and left and 0 <= self.again[0][0] <= safe:
            number, first, attempt, state, count = self.again.pop(0)
            part = min(count, left)
            left -= part
            out.append(settled(TaskId(first), attempt, state, part))
            if part < count:
                self.again.insert(0, (number, first + part, attempt, state, count - part))
        return most - left

    def leave_to(self, other: "Owned", theirs: Container[JobId]) -> None:
        """An adopter has this estate. Another one of ours makes known what the adopter was told to forget,
        so that nobody else will: all but what concerns its jobs."""
        runs = [entry for entry in self.again if job_of(TaskId(entry[1])) not in theirs]
        columns = [entry for entry in self.again_columns if job_of(TaskId(entry[1])) not in theirs]
        rest = [entry for entry in self.publishing if _job(entry) not in theirs]
        other.again[:0] = [(0, *entry[1:]) for entry in runs]
        other.again_columns[:0] = [(0, *entry[1:]) for entry in columns]
        other.publishing[:0] = [(0, *entry[1:]) for entry in rest]


class Owing(msgspec.Struct, frozen=True):
    """An estate that was adopted from us before its former owner had let go: who must hear when it has."""

    estate: EstateId
    term: int
    """Ours, when we owned it."""
    former: str
    """From whom we had it."""
    adopter: str
    adopter_term: int


class EstatesState(msgspec.Struct):
    """All of it, as it is dumped."""

    generation: int
    owned: dict[EstateId, Owned]
    given: dict[EstateId, str]
    """Estates that peers have adopted from us, oldest first; ``GIVEN_MAX`` of them are remembered."""
    given_jobs: dict[JobId, bool]
    """Jobs that an adopter has taken, oldest first; as many as ended jobs are remembered."""
    progress_at: int
    owing: list[Owing] = []
    doubtful: dict[JobId, dict[str, bool]] = {}
    """Jobs that may have been submitted elsewhere meanwhile -> peers that were asked, and whether they have
    said that they do not know it."""
    takers: dict[JobId, str] = {}
    """Who has taken each of ``given_jobs``."""

    def give(self, jobs: Sequence[JobId], adopter: str, most: int) -> None:
        """An adopter has taken jobs; ``most`` of all such are remembered."""
        for job in jobs:
            self.give_back(job)
            self.given_jobs[job], self.takers[job] = True, adopter
        while len(self.given_jobs) > most:
            self.give_back(next(iter(self.given_jobs)))

    def give_back(self, job: JobId) -> None:
        """A job is no longer one that somebody has taken."""
        self.given_jobs.pop(job, None)
        self.takers.pop(job, None)


class Unknown:
    """What the heirs of a broker's estates do not know for certain yet."""

    def __init__(self, estates: Iterable[Owned]) -> None:
        self.ends: set[tuple[TaskId, int]] = set()
        """Ends that are settled when the heir knows of them, and so not when a warden tells them again."""
        self.tasks: dict[int, Owned] = {}
        """Tasks that are over. If the heir took over now and nobody knew an attempt of one, it would start
        it; so until it knows, wardens keep the ends of all its attempts."""
        self.runs: list[tuple[int, int, Owned]] = []
        """The same of neighbours: the first, the one behind the last."""
        for owned in estates:
            self.ends.update((task, attempt) for _, task, attempt in owned.unsent)
            self.ends.update((task, attempt) for _, _, task, attempt in owned.settling)
            self.tasks.update((task, owned) for _, task, attempt, _ in owned.publishing if attempt >= 0)
            self.runs += [(first, first + count, owned) for _, first, _, _, count in owned.again]
        self.runs.sort(key=lambda run: run[0])

    def owner_of(self, task: TaskId) -> Owned | None:
        """Of which estate a task is over."""
        found = self.tasks.get(task)
        if found is None and self.runs:
            at = bisect_right(self.runs, int(task), key=lambda run: run[0]) - 1
            if at >= 0 and task < self.runs[at][1]:
                return self.runs[at][2]
        return found


def new_owned(term: int, heir: str) -> Owned:
    """An estate of which nothing is known yet."""
    owned = Owned(term, heir, {}, [], [], [], [], [], 0, [], [], {}, closing={}, again=[], again_columns=[])
    owned.done_runs = []
    return owned


def settled(task: TaskId, attempt: int, state: int, count: int) -> Command:
    """What makes known how neighbours have ended."""
    outcome = OUTCOMES[state]
    if count == 1:
        return TaskSettled(task, attempt, outcome)
    return TasksSettled(task, attempt, outcome, count)


def _job(entry: tuple[int, int, int, int]) -> JobId:
    """The job that something to be made known is about."""
    _, subject, attempt, _ = entry
    return JobId(subject) if attempt < 0 else job_of(TaskId(subject))
