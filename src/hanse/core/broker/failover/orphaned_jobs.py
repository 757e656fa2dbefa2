"""Jobs of a shard that others own, of which nobody will tell us: the one who took them over retired by force.

The new owner had acted, so the shard cannot be taken back (``abandoned_takeover``). A third broker may have
taken the jobs over from it, and owes no word to us. So we ask every other broker about every such job. One
that has it answers when it has ended; one that remembers its end answers at once: the job is that broker's
then, and requests about it are redirected. If no broker knows the job, it ended at the retired one, or was
lost with it. How it ended nobody knows; it is cancelled, with this reason. Nothing of it starts again.
"""

from typing import Final

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.abandoned_takeover import is_orphaned
from hanse.core.broker.failover.replication import ShardReplication
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import CLAIMED, RUNNING, JobRecord
from hanse.core.broker.loss_policy import lost_end
from hanse.core.messaging.message_splitting import ENTRIES_MAX
from hanse.model.effects import JobAccepted
from hanse.model.ids import JobId
from hanse.model.messages import JobEnded, ShardId, WatchJobs

ORPHANS_ROUND: Final = 0
"""Round of these questions; those about awaited jobs begin at 1."""


class OrphanedJobs:
    """Orphaned jobs of one broker."""

    def __init__(
        self, context: BrokerContext, lifecycle: JobLifecycle, replication: ShardReplication
    ) -> None:
        self.context, self.lifecycle, self.replication = context, lifecycle, replication
        self.shards = context.owned_shards
        self.state = context.owned_shards.state

    def review(self) -> None:
        """Ask about orphaned jobs, with every heartbeat; drop shards of which none is left."""
        context, state = self.context, self.state
        if len(self.shards.ids) == 1 and not state.orphaned:
            return  # there is only the shard that new jobs join
        orphaned = [
            shard
            for shard, owned in state.owned.items()
            if shard != self.shards.base_shard and is_orphaned(context.config, owned)
        ]
        if not orphaned and not state.orphaned:
            return
        for job in [job for job in state.orphaned if not self._is_in(job, orphaned)]:
            del state.orphaned[job]
        if context.gossip.least_version() < context.config.version:
            return  # a peer may still get copies from the retired broker
        for shard in orphaned:
            self._review_shard(shard)

    def _is_in(self, job: JobId, shards: list[ShardId]) -> bool:
        record = self.context.jobs.get(job)
        return record is not None and record.shard in shards

    def _review_shard(self, shard: ShardId) -> None:
        context, known = self.context, self.state.orphaned
        records = [record for record in context.jobs.values() if record.shard == shard]
        for record in records:
            known.setdefault(record.id, {})
        for peer in context.gossip.peers:
            jobs = [record.id for record in records if peer not in known[record.id]]
            if jobs and not context.links.link(peer).unacked:
                question = WatchJobs(ORPHANS_ROUND, tuple(jobs[:ENTRIES_MAX]))
                context.links.send(context.effects, context.now, peer, question)
        for record in records:
            self._end_if_unknown(record)
        if not any(record.shard == shard for record in context.jobs.values()):
            self._drop(shard)

    def on_job_ended(self, peer: str, message: JobEnded) -> None:
        """Handle a peer's answer about a job, if that is orphaned."""
        answers, record = self.state.orphaned.get(message.job), self.context.jobs.get(message.job)
        if answers is None or record is None:
            return
        if message.state >= 0:
            self.context.mark("broker.found_orphan")
            self._release(record, peer)
        elif message.round == ORPHANS_ROUND:
            answers[peer] = True
            self._end_if_unknown(record)

    def _release(self, record: JobRecord, owner: str) -> None:
        """Leave a job to the broker that knows its end."""
        self._answer_submitter(record)
        del self.state.orphaned[record.id]
        self.state.record_transfer((record.id,), owner, self.context.config.ended_max)
        self.lifecycle.release_job(record)
        self.context.history.transfer_jobs(record.shard, owner, (record.id,))
        self.lifecycle.dependencies.ask_new_owner({record.id: True})

    def _answer_submitter(self, record: JobRecord) -> None:
        if not record.admitted and not record.cancelled:
            self.context.history.add_job(record)
        if not record.admitted and record.client:
            self.context.effects.append(JobAccepted(record.client, record.request, record.id))
        record.admitted = True

    def _end_if_unknown(self, record: JobRecord) -> None:
        """Cancel a job that no other broker knows."""
        answers = self.state.orphaned[record.id]
        if not all(peer in answers for peer in self.context.gossip.peers):
            return
        self.context.mark("broker.ended_orphan")
        del self.state.orphaned[record.id]
        self._answer_submitter(record)
        base = self.shards.base_shard
        owned = self.state.owned[base]
        record.shard = base  # the standby of the new shard is told of its end
        owned.last_message = self.replication.replicate(base, owned, [record], {}) or owned.last_message
        reason = "the broker that took it over was retired by force: how it ended there is unknown"
        self.lifecycle.cancel(record, reason)
        for index, state in enumerate(record.state):
            if CLAIMED <= state <= RUNNING:
                end = lost_end(record, index, record.attempt[index], reason)
                self.lifecycle.on_attempt_lost(record, index, reason, end)

    def _drop(self, shard: ShardId) -> None:
        """Forget a shard that another broker owns."""
        owned = self.shards.remove(shard)
        assert owned is not None, "only own shards are reviewed"
        self.replication.teardown.forget_shard(shard)
        for name in owned.disowned_by.values():
            if name not in self.context.config.retired:
                self.state.transferred[shard] = name  # requests are redirected
        owned.move_unpublished_to(self.state.owned[self.shards.base_shard], {})
        self.shards.needs_release = True
