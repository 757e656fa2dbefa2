"""Being an heir: copies of peers' jobs, and the adoption of an estate whose owner has fallen silent.

Adoption is a bid to every warden. It succeeds only if all of them agree; one refusal, or a sign of life of
the owner, and everything is given back. Each bid has a number of its own, so that a late answer to an
earlier one counts for nothing.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from hanse.core.broker.context import Desk
from hanse.core.broker.failover.end_columns import Cut, have_run
from hanse.core.broker.failover.replica_updates import Ends, new_ends
from hanse.core.broker.failover.terms import TERMS_BITS
from hanse.core.broker.job_table import BLOCKED, PLACED, JobRecord, new_record
from hanse.model.ids import JobId, TaskId, index_of, job_of
from hanse.model.messages import (
    Ack,
    Adopt,
    End,
    Estate,
    EstateId,
    Progress,
    Replica,
    Replicate,
    Return,
)
from hanse.model.messages.shard_teardown import Over

ATTEMPTS_BITS: Final = 16
"""An adopter numbers attempts from its number of adoptions ``<< 16``, above any that former owners can have
used."""

Latest = dict[TaskId, tuple[int, str, End | None]]
"""Tasks -> their latest attempts: number, where, and how it ended if it did."""


class Ward(msgspec.Struct):
    """An estate of which this broker is the heir."""

    owner: str
    term: int
    jobs: dict[JobId, Replica] = {}
    done: dict[JobId, dict[int, tuple[int, int]]] = {}
    """The same as ``known`` in states that were dumped before there was that."""
    cancelled: list[JobId] = []
    since: dict[JobId, int] = {}
    """When each was accepted, on this broker's clock."""
    bid: int = 0
    """How often adoption was tried."""
    asked: int = 1 << 30
    """At how many clusters, the first ones of the league, this bid was made."""
    adopting: bool = False
    retry_at: int = 0
    answers: dict[str, bool] = {}
    running: list[tuple[str, TaskId, int]] = []
    ends: list[tuple[str, End]] = []
    partial: bool = False
    """Whether jobs are missing that the owner had before this term: then nobody may act on the copy."""
    known: dict[JobId, Ends] = {}
    """What has ended of each job."""


class Wards:
    """The estates of which this broker is the heir."""

    def __init__(self, desk: Desk, adopt: Callable[[EstateId, Ward], None]) -> None:
        self.desk = desk
        self.wards: dict[EstateId, Ward] = {}
        self.bids = 0
        """Bids made so far."""
        self._adopt = adopt

    def keep(self, owner: str, message: Replicate) -> None:
        """Keep copies of a peer's jobs. A submitter waits for this, so it is acknowledged at once."""
        self.desk.post.soft(self.desk.out, owner, Ack())
        ward = self.wards.get(message.estate)
        if ward is not None and message.term > ward.term:
            if ward.adopting:
                self._abandon(message.estate, ward)
            ward = None  # every copy comes anew with a new term
        if ward is None:
            ward = Ward(owner, message.term, {}, {}, [], {}, answers={}, running=[], ends=[], known={})
            self.wards[message.estate] = ward
        if message.term < ward.term:
            return
        ward.partial = message.more
        for replica in message.jobs:
            ward.since[replica.job] = self.desk.now - replica.age
            ward.jobs[replica.job] = replica
            ends = ward.known[replica.job] = new_ends(replica.spec.tasks)
            for index, state, attempt in replica.done:
                ends.note(index, state, attempt)

    def progress(self, owner: str, message: Progress) -> None:
        """Note what has ended of a peer's jobs, unless they are those of a later owner by now."""
        self.desk.post.soft(self.desk.out, owner, Ack())
        ward = self.wards.get(message.estate)
        if ward is None or ward.owner != owner:
            return
        for task, state, attempt in message.done:
            ends = ward.known.get(job_of(task))
            if ends is not None:
                ends.note(index_of(task), state, attempt)
        for task, state, attempt, count in message.runs:
            ends = ward.known.get(job_of(task))
            if ends is not None:
                ends.note_run(index_of(task), state, attempt, count)
        for task, states, attempts in message.columns:
            ends = ward.known.get(job_of(task))
            if ends is not None:
                ends.note_column((index_of(task), states, attempts))
        ward.cancelled += [job for job in message.cancelled if job in ward.jobs]
        for job in message.forget:
            ward.jobs.pop(job, None)
            ward.known.pop(job, None)
            ward.since.pop(job, None)
            if job in ward.cancelled:
                ward.cancelled.remove(job)
        if not ward.jobs:
            self._drop(message.estate)

    def over(self, owner: str, message: Over) -> None:
        """A peer has given an estate out of its hands, or closed it. What a later owner has sent stays."""
        ward = self.wards.get(message.estate)
        if ward is not None and ward.owner == owner:
            self.desk.mark("broker.dropped_copies")
            self._drop(message.estate)

    def _drop(self, estate: EstateId) -> None:
        """Nothing is left to inherit of an estate."""
        ward = self.wards.pop(estate)
        if ward.adopting:
            self._abandon(estate, ward)

    def knows(self, job: JobId) -> bool:
        """Whether a job is kept here for a peer."""
        return bool(self.owner_of(job))

    def owner_of(self, job: JobId) -> str:
        """For whom a job is kept here; "" if it is not."""
        return next((ward.owner for ward in self.wards.values() if job in ward.jobs), "")

    def named(self, client_id: str) -> JobId | None:
        """The job of this client id that is kept here for a peer."""
        for ward in self.wards.values():
            for replica in ward.jobs.values():
                if replica.spec.client_id == client_id:
                    return replica.job
        return None

    def tasks_of(self, job: JobId) -> int | None:
        """How many tasks a job has that is kept here for a peer."""
        for ward in self.wards.values():
            replica = ward.jobs.get(job)
            if replica is not None:
                return replica.spec.tasks
        return None

    def keep_ends(self, cluster: str, ends: tuple[End, ...]) -> Sequence[End]:
        """Which ends are ours to judge. Those of jobs that are being adopted are kept until the adoption is
        complete. Those of other jobs that are kept for a peer came too late for a bid that was given up: the
        peer is told again, or the next bid is, so they are not settled here."""
        if not self.wards:
            return ends
        ours = self.desk.jobs
        others = []
        for end in ends:
            job = job_of(end.task)
            if job in ours:
                others.append(end)
                continue
            ward = next((ward for ward in self.wards.values() if job in ward.jobs), None)
            if ward is None:
                others.append(end)
            elif ward.adopting:
                ward.ends.append((cluster, end))
            else:
                self.desk.mark("broker.end_for_peer")
        return others

    def review(self) -> None:
        """With every beat: bid for the estates of silent owners, and give up where the owner lives."""
        desk = self.desk
        for estate, ward in list(self.wards.items()):
            if desk.members.alive(ward.owner):
                if ward.adopting:
                    desk.mark("broker.adoption_abandoned")
                    self._abandon(estate, ward)
            elif ward.adopting:
                self._ask_newcomers(estate, ward)
                self._adopt_if_agreed(estate, ward)  # the last that was waited for may have retired
            elif _is_whole(ward) and not ward.adopting and desk.now >= ward.retry_at:
                desk.mark("broker.adoption_begun")
                ward.adopting = True
                self.bids += 1
                ward.bid = self.bids
                ward.asked = 0
                self._ask_newcomers(estate, ward)

    def answered(self, cluster: str, message: Estate) -> None:
        """A warden has answered a bid."""
        ward = self.wards.get(message.estate)
        if ward is None or not ward.adopting or message.bid != ward.bid:
            return
        if not message.accepted:
            self.desk.mark("broker.adoption_refused")
            self._abandon(message.estate, ward)
            if message.term > ward.term:
                del self.wards[message.estate]  # another heir was named: our copies are out of date
            return
        ward.answers[cluster] = True
        ward.running += [(cluster, task, attempt) for task, attempt in message.running]
        ward.ends += [(cluster, end) for end in message.ended]
        self._adopt_if_agreed(message.estate, ward)

    def _ask_newcomers(self, estate: EstateId, ward: Ward) -> None:
        """Bid at the clusters that were not asked yet: all of them, or those that joined since."""
        desk = self.desk
        for cluster in desk.config.clusters[ward.asked :]:
            if cluster not in desk.config.retired:
                adopt = Adopt(estate, ward.owner, ward.term, ward.bid)
                desk.post.send(desk.out, desk.now, cluster, adopt)
        ward.asked = len(desk.config.clusters)

    def _adopt_if_agreed(self, estate: EstateId, ward: Ward) -> None:
        if all(name in ward.answers for name in self.desk.config.serving):
            self.desk.mark("broker.adopted_estate")
            del self.wards[estate]
            self._adopt(estate, ward)

    def _abandon(self, estate: EstateId, ward: Ward) -> None:
        desk = self.desk
        for cluster in desk.config.serving:
            desk.post.send(desk.out, desk.now, cluster, Return(estate, ward.term, ward.bid))
        ward.adopting = False
        turn = desk.config.brokers.index(desk.config.name) + 1  # rivals must not retry in step
        ward.retry_at = desk.now + turn * desk.timings.beat
        ward.answers.clear()
        ward.running.clear()
        ward.ends.clear()


def place_again(record: JobRecord, latest: Latest, place_of: Callable[[str], int]) -> list[tuple[str, End]]:
    """Put the tasks of an adopted job where the wardens have them; the ends that they told of, with the
    cluster of each."""
    ends: list[tuple[str, End]] = []
    for task, (attempt, cluster, end) in sorted(latest.items()):
        index = index_of(task)
        if record.state[index] == BLOCKED:
            record.attempt[index] = attempt
            record.state[index] = PLACED
            record.place[index] = place_of(cluster)
        if end is not None:
            ends.append((cluster, end))
    return ends


def _is_whole(ward: Ward) -> bool:
    """Whether there is something to bid for, and nothing of it is missing."""
    return bool(ward.jobs) and not ward.partial and is_complete(ward)


def is_complete(ward: Ward) -> bool:
    """Whether every copy has all the ends that were to follow it. They come before anything newer."""
    known = ward.known
    return all(not copy.rest or known[job].count >= copy.rest for job, copy in ward.jobs.items())


def renew(wards: dict[EstateId, Ward]) -> dict[EstateId, Ward]:
    """Wards of a dumped state, which may be one of before ends were kept as columns."""
    for ward in wards.values():
        for job, replica in ward.jobs.items():
            if job not in ward.known:
                ends = ward.known[job] = new_ends(replica.spec.tasks)
                for index, (state, attempt) in ward.done.pop(job, {}).items():
                    ends.note(index, state, attempt)
    return wards


def revive(replica: Replica, ward: Ward, estate: EstateId, cut: Cut) -> JobRecord:
    """A record from a copy and its ends: those stay, the rest is blocked until it is looked at."""
    record = new_record(replica.job, replica.spec, estate, ward.since[replica.job])
    record.admitted = True
    record.cancelled = replica.cancelled
    base = ((ward.term >> TERMS_BITS) + 1) << ATTEMPTS_BITS
    record.attempt = [base] * len(record.state)
    ends = ward.known[replica.job]
    runs, columns = cut
    for first, state, attempt, count in runs:
        behind = first + count
        record.state[first:behind] = bytes((state,)) * count
        record.attempt[first:behind] = [attempt] * count
        record.ran[first:behind] = bytes((attempt > 0,)) * count
    for column in columns:
        first, behind = column[0], column[0] + len(column[1])
        ended = np.frombuffer(column[1], dtype=np.uint8) > 0
        known = np.array(ends.attempt[first:behind], dtype=object)  # numbers that are there: none is made
        record.state[first:behind] = column[1]  # what has not ended is blocked, which is 0 too
        record.attempt[first:behind] = np.where(ended, known, base).tolist()
        record.ran[first:behind] = have_run(column)
    record.left -= ends.count
    at = 0
    for group, part in enumerate(replica.spec.groups):
        record.unfinished[group] = record.state.count(BLOCKED, at, at + part.count)
        at += part.count
    return record


def latest_attempts(ward: Ward) -> dict[JobId, Latest]:
    """For each task of each job the latest attempt any warden knows."""
    latest: dict[JobId, Latest] = {}
    entries = [(attempt, cluster, task, None) for cluster, task, attempt in ward.running]
    entries += [(end.attempt, cluster, end.task, end) for cluster, end in ward.ends]  # type: ignore[misc]
    for attempt, cluster, task, end in entries:
        tasks = latest.setdefault(job_of(task), {})
        known = tasks.get(task)
        if known is None or attempt > known[0] or (attempt == known[0] and end is not None):
            tasks[task] = (attempt, cluster, end)
    return latest
