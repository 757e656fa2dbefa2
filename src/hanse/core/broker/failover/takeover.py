"""Takeover of the shards of silent peers, and release of own shards that peers have taken over.

A takeover is a request to every warden. It succeeds only if all of them agree. One refusal, or a sign of life
of the owner, aborts it everywhere. Each attempt has its own id, so late replies to earlier ones are ignored.
"""

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.owned_shards import new_owned_shard
from hanse.core.broker.failover.replication import ShardReplication
from hanse.core.broker.failover.standby import (
    ATTEMPTS_BITS,
    LatestAttempts,
    StandbyShard,
    StandbyShards,
    can_take_over,
    latest_attempts,
    restore_job,
    restore_placements,
)
from hanse.core.broker.failover.terms import TERMS_BITS
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import WAITING, JobRecord, new_record
from hanse.core.broker.loss_policy import find_unaccounted, lost_end
from hanse.model.effects import JobAccepted
from hanse.model.ids import INDEX_MASK, job_of, task_id
from hanse.model.messages import OwnershipReply, OwnershipTransferred, RequestTakeover, ShardId


class ShardTakeover:
    """Takeovers by one broker, and from it."""

    def __init__(
        self, context: BrokerContext, lifecycle: JobLifecycle, replication: ShardReplication,
        standby_shards: StandbyShards,
    ) -> None:  # fmt: skip
        self.context = context
        self.lifecycle = lifecycle
        self.replication = replication
        self.standby = standby_shards
        self.shards = context.owned_shards
        self.state = context.owned_shards.state

    # --- requests to the wardens ---------------------------------------------------------------------------

    def review(self) -> None:
        """Start takeovers of the shards of silent owners, with every heartbeat; abort where the owner
        lives."""
        context = self.context
        for shard, shard_copy in list(self.standby.shards.items()):
            if shard_copy.owner in context.config.retired and not can_take_over(shard_copy):
                del self.standby.shards[shard]  # the rest of the copy never comes
            elif context.gossip.is_alive(shard_copy.owner):
                if shard_copy.is_taking_over:
                    context.mark("broker.adoption_abandoned")
                    self.standby.abort_takeover(shard, shard_copy)
            elif shard_copy.is_taking_over:
                self._request_takeover(shard, shard_copy)
                self._take_over_if_agreed(shard, shard_copy)  # the last missing cluster may have retired
            elif (
                can_take_over(shard_copy)
                and not shard_copy.is_taking_over
                and context.now >= shard_copy.retry_at
            ):
                context.mark("broker.adoption_begun")
                shard_copy.is_taking_over = True
                self.standby.takeover_count += 1
                shard_copy.takeover_id = self.standby.takeover_count
                shard_copy.clusters_asked = 0
                self._request_takeover(shard, shard_copy)

    def on_ownership_reply(self, cluster: str, message: OwnershipReply) -> None:
        """Handle a warden's reply to a takeover request."""
        shard_copy = self.standby.shards.get(message.shard)
        if (
            shard_copy is None
            or not shard_copy.is_taking_over
            or message.takeover_id != shard_copy.takeover_id
        ):
            return
        if not message.accepted:
            self.context.mark("broker.adoption_refused")
            self.standby.abort_takeover(message.shard, shard_copy)
            if message.term > shard_copy.term:
                self.context.history.drop_copies(message.shard, shard_copy.owner)
                del self.standby.shards[message.shard]  # a newer term is registered: it is outdated
            return
        shard_copy.answers[cluster] = True
        shard_copy.running += [(cluster, task, attempt) for task, attempt in message.running]
        shard_copy.ends += [(cluster, end) for end in message.ended]
        self._take_over_if_agreed(message.shard, shard_copy)

    def _request_takeover(self, shard: ShardId, shard_copy: StandbyShard) -> None:
        """Send the request to the clusters that were not asked yet: all, or those that have joined since."""
        context = self.context
        for cluster in context.config.clusters[shard_copy.clusters_asked :]:
            if cluster not in context.config.retired:
                request = RequestTakeover(shard, shard_copy.owner, shard_copy.term, shard_copy.takeover_id)
                context.links.send(context.effects, context.now, cluster, request)
        shard_copy.clusters_asked = len(context.config.clusters)

    def _take_over_if_agreed(self, shard: ShardId, shard_copy: StandbyShard) -> None:
        if all(name in shard_copy.answers for name in self.context.config.active_clusters):
            self.context.mark("broker.adopted_estate")
            del self.standby.shards[shard]
            self._take_over(shard, shard_copy)

    # --- after all have agreed, and after a peer has taken over --------------------------------------------

    def _take_over(self, shard: ShardId, shard_copy: StandbyShard) -> None:
        """Become the owner of a shard, after every warden has agreed."""
        context = self.context
        standby = next(
            (
                name
                for name in context.gossip.ring
                if name != shard_copy.owner and context.gossip.is_alive(name)
            ),
            "",
        )
        term = ((shard_copy.term >> TERMS_BITS) + 1) << TERMS_BITS
        owned = self.shards.add(shard, new_owned_shard(term, standby))
        owned.jobs_left, owned.former_owner = len(shard_copy.jobs), shard_copy.owner
        owned.agreed_version = context.config.version
        cuts = {job: shard_copy.task_ends[job].cut() for job in shard_copy.jobs}
        records = []
        for replica in shard_copy.jobs.values():
            record = restore_job(replica, shard_copy, shard, cuts[replica.job])
            records.append(record)
            self.lifecycle.add_job(record)
            self.state.forget_transfer(record.id)
        jobs = tuple(shard_copy.jobs)
        context.history.transfer_jobs(shard, context.config.name, jobs)
        self.replication.register_standby(shard)
        owned.last_message = self.replication.replicate(shard, owned, records, cuts)
        context.links.send(
            context.effects,
            context.now,
            shard_copy.owner,
            OwnershipTransferred(shard, jobs, term),
        )
        latest = latest_attempts(shard_copy)
        for record in records:
            task = task_id(record.id, 0)
            runs, columns = cuts[record.id]
            owned.republishing += [
                (owned.last_message, task + run[0], run[2], run[1], run[3]) for run in runs
            ]
            owned.republishing_columns += [(owned.last_message, task + one[0], *one[1:]) for one in columns]
        self.shards.needs_release = True
        for record in records:
            self._resume(record, latest.get(record.id, {}), record.id in shard_copy.cancelled)
        for cluster, end in shard_copy.ends:
            known = latest.get(job_of(end.task), {}).get(end.task)
            if job_of(end.task) not in shard_copy.jobs or known is None or known[2] is not end:
                # an older attempt, or a job that ended before
                context.end_acks.add(context.now, cluster, [(end.task, end.attempt)])

    def _resume(self, record: JobRecord, latest: LatestAttempts, cancelled: bool) -> None:
        """Continue a job of a taken shard where it was."""
        found, ends = restore_placements(
            record, latest, lambda cluster: self.context.view_by_name[cluster].index
        )
        self.context.history.resume_tasks(record, found)
        for group, part in enumerate(record.spec.groups):
            if record.unfinished[group] < part.count:
                record.last_decision[group] = ""
        record.cancelled = cancelled or record.cancelled  # a cancelled job is not queued
        lost_cluster, tasks = ("", []) if record.cancelled else find_unaccounted(self.context, record)
        for index in tasks:
            reason = f"it is unknown whether it started in {lost_cluster}"
            self.lifecycle.fail_lost(record, index, reason, lost_end(record, index, 0, reason))
        self.lifecycle.resume(record)
        for cluster, end in ends:
            self.replication.on_attempts_ended(cluster, (end,))
        base = (self.state.owned[record.shard].term >> TERMS_BITS) << ATTEMPTS_BITS
        for task in latest:
            index = task & INDEX_MASK
            if record.state[index] <= WAITING:  # the former owner may have used higher numbers than are known
                record.attempt[index] = max(record.attempt[index], base)
        if record.cancelled and record.id in self.context.jobs:
            record.cancelled = False
            self.lifecycle.cancel(record, "cancelled before the takeover")

    def on_ownership_transferred(self, new_owner: str, message: OwnershipTransferred) -> None:
        """Release a shard that a peer has taken over: drop the jobs that it has, restart those that it never
        got."""
        owned = self.shards.remove(message.shard)
        self.replication.teardown.on_ownership_transferred(new_owner, message, owned)
        if owned is None:
            return
        self.context.mark("broker.estate_taken")
        if message.shard == self.shards.base_shard:
            self.replication.create_shard()
        records = [record for record in self.context.jobs.values() if record.shard == message.shard]
        transferred_jobs = dict.fromkeys(message.jobs, True)
        self.state.record_transfer(message.jobs, new_owner, self.context.config.ended_max)
        for record in records:
            self.lifecycle.release_job(record)
            self.state.orphaned.pop(record.id, None)  # this is the word that nobody seemed to owe
            if record.id in transferred_jobs:
                if not record.admitted and not record.cancelled:
                    self.context.history.add_job(record)
                if not record.admitted and record.client:
                    self.context.effects.append(JobAccepted(record.client, record.request, record.id))
            elif record.cancelled:
                self._end_cancelled_job(record)
            else:
                self._restart_job(record)
        self.context.history.transfer_jobs(message.shard, new_owner, message.jobs)
        owned.move_unpublished_to(self.state.owned[self.shards.base_shard], transferred_jobs)
        self.shards.needs_release = True
        self.lifecycle.dependencies.ask_new_owner(transferred_jobs)

    def _restart_job(self, record: JobRecord) -> None:
        """Start a job again that the new owner never got: nothing of it can run anywhere."""
        self.context.mark("broker.rehomed_job")
        fresh = new_record(record.id, record.spec, self.shards.base_shard, record.accepted_at)
        fresh.client, fresh.request = record.client, record.request
        fresh.attempt = [attempt + 1 for attempt in record.attempt]
        if record.admitted or record.cancelled:
            self.context.history.add_job(fresh)
        self.lifecycle.add_job(fresh)
        self.replication.duplicates.mark_doubtful((fresh,))
        self.replication.accept_job(fresh)

    def _end_cancelled_job(self, record: JobRecord) -> None:
        """Go on with the end of a large cancelled job that the new owner never got: nothing of it starts
        again. It may have been orphaned, and then parts of it have run elsewhere."""
        base = self.shards.base_shard
        record.shard, record.cancelled = base, False
        self.lifecycle.add_job(record)
        owned = self.state.owned[base]
        owned.last_message = self.replication.replicate(base, owned, [record], {}) or owned.last_message
        self.lifecycle.cancel(record, record.cancel_reason)
