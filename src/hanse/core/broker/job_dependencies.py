"""Dependencies between jobs: a job with ``after`` waits until other jobs, here or at peers, have succeeded.

The end of a job counts when it is published. A broker asks all peers about a job that it does not know. A
peer that has the job replies when the job has ended; if no peer knows the job, it counts as failed.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.standby import StandbyShards
from hanse.core.broker.job_table import FAILED, SUCCEEDED, JobRecord
from hanse.core.messaging.link import RESEND_MAX
from hanse.model.ids import JobId
from hanse.model.messages import JobEnded, Outcome, WatchJobs

WATCHERS_MAX: Final = 100_000
"""Open questions of peers about the ends of jobs."""


class EndedJob(msgspec.Struct, gc=False, rename={"is_published": "known"}):
    """Job that has ended."""

    outcome: Outcome
    client_id: str
    is_published: bool = False
    """True if the end was published; before that a standby could still decide otherwise."""


class JobQuery(msgspec.Struct, gc=False, rename={"unknown_at": "ignorant"}):
    """Question to all peers about a job: the round of asking, and the peers that do not know the job."""

    round: int
    unknown_at: list[str]


class DependencyListener(Protocol):
    """Receiver of the ends of awaited jobs."""

    def on_dependency_ended(self, record: JobRecord, job: JobId, succeeded: bool) -> None:
        """Handle the end of a job for which ``record`` may wait."""


class JobDependencies:
    """Ends of jobs that a broker remembers, and the jobs that wait for ends."""

    def __init__(
        self, context: BrokerContext, standby_shards: StandbyShards, listener: DependencyListener
    ) -> None:
        self.context = context
        self._standby = standby_shards
        self._listener = listener
        self.ended_jobs: dict[JobId, EndedJob] = {}
        """Own jobs that have ended, oldest first; ``ended_max`` are remembered."""
        self.watchers: dict[JobId, list[str]] = {}
        """Own job -> peers to be told when it ends."""
        self.unknown_jobs: dict[JobId, JobQuery] = {}
        """Jobs of other brokers for which own jobs wait."""
        self.round = 0
        """Number of times that peers were asked about jobs."""
        self.awaited_jobs: dict[JobId, None] = {}
        """Jobs that live jobs wait for, and perhaps a few more; the end of any other job concerns none."""

    def handlers(self) -> dict[type, Callable[[str, Any], None]]:
        """Return the handlers by message type."""
        return {WatchJobs: self.on_watch_jobs}

    def add(self, record: JobRecord) -> None:
        """Note the jobs for which a new job waits."""
        for job in record.after:
            self.awaited_jobs[job] = None

    def look_up(self, record: JobRecord) -> None:
        """Apply the ends, as far as they are known, of the jobs for which a job waits; ask peers about jobs
        that are unknown here."""
        for job in list(record.after):
            if not record.cancelled:
                self._look_up(record, job)

    def _look_up(self, record: JobRecord, job: JobId) -> None:
        if job in self.context.jobs:
            return
        ended = self.ended_jobs.get(job)
        if ended is None:
            self.ask_peers(job)
        elif ended.is_published:
            self._listener.on_dependency_ended(record, job, ended.outcome is Outcome.SUCCEEDED)

    def ask_peers(self, job: JobId) -> None:
        """Ask every peer about a foreign job, in a new round: only replies to this round count."""
        self.round += 1
        self.unknown_jobs[job] = JobQuery(self.round, [])
        for peer in self.context.gossip.peers:
            if (
                len(self.context.links.link(peer).unacked) < RESEND_MAX
            ):  # else it is unreachable: asked again later
                self.context.links.send(
                    self.context.effects, self.context.now, peer, WatchJobs(self.round, (job,))
                )
        self._give_up_unknown(job)

    def repeat_questions(self) -> None:
        """Repeat, with every heartbeat, the questions for which a job still waits."""
        for job in list(self.unknown_jobs):
            if self._find_dependents(job):
                self.ask_peers(job)
            else:
                del self.unknown_jobs[job]
                self.awaited_jobs.pop(job, None)

    def on_watch_jobs(self, peer: str, message: WatchJobs) -> None:
        """Answer a peer's question about jobs, or remember it."""
        for job in message.jobs:
            ended = self.ended_jobs.get(job)
            if job in self.context.jobs or (ended is not None and not ended.is_published):
                names = self.watchers.setdefault(job, [])
                if peer not in names and len(self.watchers) < WATCHERS_MAX:
                    names.append(peer)
            elif ended is not None:
                state = SUCCEEDED if ended.outcome is Outcome.SUCCEEDED else FAILED
                self.context.links.send(
                    self.context.effects, self.context.now, peer, JobEnded(message.round, job, state)
                )
            elif not self._is_elsewhere(job, peer):
                self.context.links.send(
                    self.context.effects, self.context.now, peer, JobEnded(message.round, job, -1)
                )

    def _is_elsewhere(self, job: JobId, asker: str) -> bool:
        """True if another broker than the one who asks must answer for a job: it is kept here for a peer, or
        a peer has taken it over. A retired one never answers; once no copy of the job can come from it any
        more, who has one answers instead."""
        context, state = self.context, self.context.owned_shards.state
        if self._standby.find_owner(job) not in ("", asker):
            return True
        if job not in state.transferred_jobs or state.new_owners.get(job) == asker:
            return False
        if state.new_owners.get(job) not in context.config.retired:
            return True
        return context.gossip.least_version() < context.config.version

    def on_job_ended(self, peer: str, message: JobEnded) -> None:
        """Handle a peer's answer about a job."""
        query = self.unknown_jobs.get(message.job)
        if query is None:
            return
        if message.state >= 0:
            del self.unknown_jobs[message.job]
            self._tell_dependents(message.job, message.state == SUCCEEDED)
        elif message.round == query.round and peer not in query.unknown_at:
            query.unknown_at.append(peer)
            self._give_up_unknown(message.job)

    def _give_up_unknown(self, job: JobId) -> None:
        if job in self.context.jobs or job in self.ended_jobs or self._standby.has_job(job):
            return  # we have taken it over since we asked, or are about to
        if len(self.unknown_jobs[job].unknown_at) == len(self.context.gossip.peers):
            del self.unknown_jobs[job]
            self.context.mark("broker.dependency_unknown")
            self._tell_dependents(job, False)

    def _tell_dependents(self, job: JobId, succeeded: bool) -> None:
        for record in self._find_dependents(job):
            self._listener.on_dependency_ended(record, job, succeeded)
        self.awaited_jobs.pop(job, None)

    def _find_dependents(self, job: JobId) -> list[JobRecord]:
        """Return the live jobs that wait for the end of a job, in order of arrival."""
        if job not in self.awaited_jobs:
            return []
        return [record for record in self.context.jobs.values() if job in record.after]

    def announce(self, job: JobId) -> None:
        """Tell the jobs that wait for a job, here and at peers, how it ended: its end is published."""
        ended = self.ended_jobs.get(job)
        if ended is None:
            return
        ended.is_published = True
        succeeded = ended.outcome is Outcome.SUCCEEDED
        for peer in self.watchers.pop(job, ()):
            state = SUCCEEDED if succeeded else FAILED
            self.context.links.send(self.context.effects, self.context.now, peer, JobEnded(0, job, state))
        self._tell_dependents(job, succeeded)

    def ask_new_owner(self, jobs: dict[JobId, bool]) -> None:
        """Ask the new owner about transferred jobs for which jobs wait here."""
        for job in jobs:
            ended = self.ended_jobs.get(job)
            if ended is not None and not ended.is_published:
                del self.ended_jobs[job]
            if self._find_dependents(job):
                self.ask_peers(job)

    def restore(
        self, ended_jobs: dict[JobId, EndedJob], watchers: dict[JobId, list[str]],
        unknown_jobs: dict[JobId, JobQuery], latest_round: int,
    ) -> None:  # fmt: skip
        """Restore a dumped state, after the jobs."""
        self.ended_jobs, self.watchers, self.unknown_jobs = ended_jobs, watchers, unknown_jobs
        self.round = latest_round
        self.awaited_jobs = {job: None for record in self.context.jobs.values() for job in record.after}

    def check(self) -> None:
        """Assert that every awaited job is noted."""
        jobs = self.context.jobs.values()
        assert all(job in self.awaited_jobs for record in jobs for job in record.after), "a wait is forgotten"
