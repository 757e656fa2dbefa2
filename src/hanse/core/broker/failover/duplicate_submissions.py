"""Detection of a submission that two brokers accepted, so that it runs as one job.

A broker accepts a job and dies before a copy has reached its standby. The submitter gets no answer and
submits to another broker under the same client id. When the first broker comes back it must not run the job
as well. So a job that is admitted late (after a restart, after a takeover that missed it, or because its
standby could not be reached for long) is *doubtful*: the broker first asks every reachable peer for its
client id. If a peer knows the id, the job here is dropped. Its submitter was never told that it was accepted,
so nothing is lost.

Two gaps remain: a peer that has the other job and cannot be reached during the query, and a submission that
reaches a peer after its reply and before the job is admitted here.
"""

from collections.abc import Callable, Iterable
from typing import Any

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.end_log import EndLog
from hanse.core.broker.failover.standby import StandbyShards
from hanse.core.broker.job_dependencies import EndedJob
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import JobRecord
from hanse.model.effects import RequestRejected
from hanse.model.ids import JobId, job_text
from hanse.model.messages import Outcome
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply


class DuplicateSubmissions:
    """Doubtful jobs of one broker, and its replies to the queries of others."""

    def __init__(
        self, context: BrokerContext, lifecycle: JobLifecycle, end_log: EndLog, standby_shards: StandbyShards
    ) -> None:
        self.context, self.lifecycle = context, lifecycle
        self.state = context.owned_shards.state
        self._end_log = end_log
        self._standby = standby_shards

    def handlers(self) -> dict[type, Callable[[str, Any], None]]:
        """Return the handlers by message type."""
        return {DuplicateQuery: self.on_duplicate_query, DuplicateReply: self.on_duplicate_reply}

    def mark_doubtful(self, records: Iterable[JobRecord]) -> None:
        """Mark jobs that may have been submitted elsewhere, unless they were acknowledged."""
        doubtful = self.state.doubtful
        for record in records:
            if not record.admitted and record.spec.client_id and self.context.gossip.peers:
                doubtful.setdefault(record.id, {})

    def must_wait(self, record: JobRecord) -> bool:
        """True if a job that is safe with its standby must wait for replies of peers."""
        doubtful = self.state.doubtful
        if self.context.now - record.accepted_at > self.context.timings.suspect_after:
            self.mark_doubtful((record,))
        answers = doubtful.get(record.id)
        if answers is None:
            return False
        context, waits = self.context, False
        for peer in context.gossip.peers:
            if answers.get(peer) or not context.is_reachable(peer):
                continue
            waits = True
            if peer not in answers and not context.links.link(peer).is_crowded:  # else with a later heartbeat
                answers[peer] = False
                context.links.send(
                    context.effects, context.now, peer, DuplicateQuery(record.id, record.spec.client_id)
                )
        if not waits:
            del doubtful[record.id]
        return waits

    def review(self) -> None:
        """Check the doubtful jobs again with every heartbeat: peers may have come or gone."""
        doubtful = self.state.doubtful
        waiting = []
        for job in list(doubtful):
            record = self.context.jobs.get(job)
            if record is None or record.admitted:
                del doubtful[job]
            else:
                waiting.append(record)
        if waiting:
            self.context.owned_shards.admit_again(waiting)

    def on_duplicate_reply(self, peer: str, message: DuplicateReply) -> None:
        """Handle a peer's reply: it knows the client id of a doubtful job, or does not."""
        answers = self.state.doubtful.get(message.job)
        record = self.context.jobs.get(message.job)
        if answers is None or record is None or record.admitted or peer not in answers:
            return
        if not message.known_job:
            answers[peer] = True
            self.context.owned_shards.admit_again([record])
            return
        self.context.mark("broker.dropped_duplicate")
        del self.state.doubtful[message.job]
        self._drop(record, JobId(message.known_job))
        self._end_log.forget_replica(record)
        if record.client:
            reason = f"client_id: the league has this job already, as {job_text(JobId(message.known_job))}"
            self.context.effects.append(RequestRejected(record.client, record.request, reason))

    def _drop(self, record: JobRecord, known_job: JobId) -> None:
        """Drop a job that was never acknowledged. Later submissions with its client id get the number of the
        other one, as long as ended jobs are remembered."""
        self.context.history.drop_job(record.id)
        self.lifecycle.release_job(record)
        ended = EndedJob(Outcome.CANCELLED, record.spec.client_id, is_published=True)
        self.lifecycle.remember(record.id, ended)
        self.lifecycle.clients[record.spec.client_id] = known_job

    def on_duplicate_query(self, peer: str, message: DuplicateQuery) -> None:
        """Reply with the number of the job that has this client id here, if it is another one. Of two
        doubtful jobs the lower number stays."""
        known = self.lifecycle.clients.get(message.client_id)
        if known is None:
            known = self._standby.find_by_client_id(message.client_id)
        if known == message.job or (known in self.state.doubtful and message.job < (known or 0)):
            known = None
        self.context.links.send(
            self.context.effects, self.context.now, peer, DuplicateReply(message.job, known or 0)
        )
