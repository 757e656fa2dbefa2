"""Replication of a broker's accepted jobs to its standbys, and publication of what the standbys have.

The accepted jobs of a broker form its *shard*. The README of this folder is the theory of operation: order of
messages, invariants, and why at most one broker acts for a shard.
"""

from collections.abc import Sequence
from typing import Final

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.abandoned_takeover import is_owned_by_retired, is_takeover_abandoned
from hanse.core.broker.failover.duplicate_submissions import DuplicateSubmissions
from hanse.core.broker.failover.end_columns import CutEnds
from hanse.core.broker.failover.end_log import EndLog
from hanse.core.broker.failover.owned_shards import (
    OwnedShard,
    OwnedShardsState,
    UnreplicatedEnds,
    new_owned_shard,
)
from hanse.core.broker.failover.replica_updates import replica_messages
from hanse.core.broker.failover.shard_teardown import ShardTeardown
from hanse.core.broker.failover.standby import StandbyShards
from hanse.core.broker.failover.terms import reclaimed_term, takeover_count
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import OUTCOME_BY_STATE, JobRecord
from hanse.core.messaging.link import NEVER
from hanse.core.messaging.message_splitting import ENTRIES_MAX
from hanse.model.effects import JobAccepted, JobSettled, TaskSettled
from hanse.model.ids import INDEX_BITS, INDEX_MASK, JobId, TaskId
from hanse.model.messages import AttemptEnd, OwnershipReply, RegisterStandby, ShardId

PUBLISH_MAX: Final = ENTRIES_MAX
"""Ends that one event publishes; the rest follows at once, with the next event."""


class ShardReplication:
    """Shards that one broker owns."""

    def __init__(
        self, context: BrokerContext, lifecycle: JobLifecycle, end_log: EndLog, standby_shards: StandbyShards
    ) -> None:
        self.context = context
        self.lifecycle = lifecycle
        self.end_log = end_log
        self.shards = context.owned_shards
        self.state = context.owned_shards.state
        self.teardown = ShardTeardown(context)
        self.duplicates = DuplicateSubmissions(context, lifecycle, end_log, standby_shards)
        config = context.config
        self._newcomers = [
            (cluster, since)
            for cluster, since in zip(config.clusters, config.clusters_since, strict=False)
            if since and cluster not in config.retired
        ]
        """Clusters that joined after the league was founded, with the version in which each did."""
        self._budget_effects, self._budget = context.effects, PUBLISH_MAX
        """Number of ends that the event with this list of effects may still publish."""

    def restore(self, state: OwnedShardsState) -> None:
        """Restore a dumped state."""
        self.shards.restore(state)
        self.teardown.has_grown = True

    def check(self) -> None:
        """Assert the invariants of the owned shards."""
        self.shards.check()
        self.teardown.check()

    # --- owning --------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Create the first shard, or register every owned shard with its wardens again."""
        if not self.state.generation:
            self.create_shard()
            return
        self.teardown.boot()
        self.duplicates.mark_doubtful(self.context.jobs.values())
        for shard, owned in self.state.owned.items():
            if not owned.closed_at and not owned.copy_complete_message:
                self.register_standby(shard)

    def create_shard(self) -> None:
        """Create the shard that newly submitted jobs join from now on."""
        self.state.generation += 1
        base = self.shards.base_shard
        self.shards.add(base, new_owned_shard(1, self._find_next_standby()))
        self.register_standby(base)

    def register_standby(self, shard: ShardId) -> None:
        """Register the standby of a shard with the wardens that have not accepted the present term."""
        owned = self.state.owned[shard]
        message = RegisterStandby(
            shard, owned.term, owned.standby, owned.term in owned.accepted_terms.values()
        )
        for cluster in self._find_refusing(owned):
            self.context.links.send(self.context.effects, self.context.now, cluster, message)

    def on_ownership_reply(self, cluster: str, message: OwnershipReply) -> None:
        """Handle a warden's reply to a registration."""
        owned = self.state.owned.get(message.shard)
        if owned is None:
            return
        if not message.accepted:
            self._on_disowned(message, owned, cluster)
        elif message.owner == self.context.config.name:
            owned.disowned_by.pop(cluster, None)
            owned.abandoned_at.pop(cluster, None)
            first = message.term == owned.term and owned.term not in owned.accepted_terms.values()
            owned.accepted_terms[cluster] = message.term
            if first and any(term != owned.term for term in owned.accepted_terms.values()):
                self.register_standby(
                    message.shard
                )  # accepted elsewhere: this reverts wardens that agreed to an aborted takeover
            self.shards.needs_release = True
            self.release_safe()

    def _on_disowned(self, message: OwnershipReply, owned: OwnedShard, cluster: str) -> None:
        """Note that a warden has another owner for a shard. When all have, peers took our jobs over while we
        were cut off: new jobs join a new shard at once, and the old ones wait for the message of the new
        owner, or for the return of the shard if that one never acted."""
        shard, owner = message.shard, message.owner
        owned.abandoned_at.pop(cluster, None)
        if owner and owner != self.context.config.name:
            owned.disowned_by[cluster] = owner
            owned.disowned_number = max(owned.disowned_number, takeover_count(message.term))
            if message.is_abandoned and takeover_count(message.term) == takeover_count(owned.term):
                owned.abandoned_at[cluster] = True
            if shard == self.shards.base_shard and all(
                name in owned.disowned_by for name in self.context.config.active_clusters
            ):
                self.context.mark("broker.founded_anew")
                owned.jobs_left = sum(record.shard == shard for record in self.context.jobs.values())
                self.create_shard()
            self._reclaim_abandoned(shard, owned)

    def _reclaim_abandoned(self, shard: ShardId, owned: OwnedShard) -> None:
        """Act for a shard again if the takeover of it was abandoned."""
        if is_takeover_abandoned(self.context.config, owned):
            self.context.mark("broker.reclaimed_estate")
            owned.abandoned_at.clear()
            term = reclaimed_term(owned.term)
            owned.skipped_count += takeover_count(term) - takeover_count(owned.term)
            self._name_standby(shard, owned, self._find_next_standby(), term)

    def review(self) -> None:
        """Replace unreachable standbys and repeat refused registrations, with every heartbeat."""
        if len(self.shards.ids) > 1:  # else there is only the shard that new jobs join
            self.teardown.review()
        if self.teardown.has_grown:
            self.teardown.trim()
        if self.state.doubtful:
            self.duplicates.review()
        for shard, owned in self.state.owned.items():
            if owned.closed_at:
                continue  # nothing is left of it to be taken over
            is_reachable = self.context.is_reachable(owned.standby)
            standby = owned.standby if is_reachable else self._find_next_standby()
            if standby != owned.standby:
                self.context.mark("broker.changed_heir")
                self._name_standby(shard, owned, standby, owned.term + 1)
            elif (
                (is_reachable or is_owned_by_retired(self.context.config, owned))
                and self._find_refusing(owned)
                and not owned.copy_complete_message
                and not self._has_unanswered()
            ):
                self.register_standby(shard)
            if owned.abandoned_at:
                self._reclaim_abandoned(shard, owned)

    def find_tellable_version(self) -> int:
        """Return the version of the league file that peers may believe this broker uses: the own one, or the
        one before a cluster joined whose warden does not know a takeover by this broker. Nobody uses that
        cluster until then, so a former owner that missed the takeover cannot start anything there."""
        version = self.context.config.version
        for cluster, since in self._newcomers:
            if since <= version and any(
                one.is_unknown_to(cluster, since) for one in self.state.owned.values()
            ):
                version = since - 1
        return version

    def _find_next_standby(self) -> str:
        """Return the first reachable peer on the ring; "" if there is none."""
        return next((name for name in self.context.gossip.ring if self.context.is_reachable(name)), "")

    def _find_refusing(self, owned: OwnedShard) -> list[str]:
        """Return the clusters that have not accepted the present term."""
        term, accepted = owned.term, owned.accepted_terms
        return [cluster for cluster in self.context.config.active_clusters if accepted.get(cluster) != term]

    def _has_unanswered(self) -> bool:
        return any(
            self.context.links.link(cluster).unacked for cluster in self.context.config.active_clusters
        )

    def _name_standby(self, shard: ShardId, owned: OwnedShard, standby: str, term: int) -> None:
        """Name another standby under a higher term, and copy every job to it."""
        owned.term, owned.standby = term, standby
        jobs = [record for record in self.context.jobs.values() if record.shard == shard]
        owned.last_message = owned.copy_complete_message = self.replicate(shard, owned, jobs, {})
        if (
            not owned.copy_complete_message
        ):  # else the old standby, which has every job, stays registered until the new one has them
            self.register_standby(shard)
        owned.pending_acks = [(owned.last_message, *entry[1:]) for entry in owned.pending_acks]
        owned.mark_sent(owned.last_message)
        owned.publishing = [(owned.last_message, *entry[1:]) for entry in owned.publishing]
        owned.cover_republishing(owned.last_message)
        owned.admitting = [(owned.last_message, job) for _, job in owned.admitting]
        self.shards.needs_release = True
        self.release_safe()

    def replicate(
        self, shard: ShardId, owned: OwnedShard, jobs: list[JobRecord], cuts: dict[JobId, CutEnds]
    ) -> int:
        """Copy jobs to the standby; return the number of the last message, 0 if there is no standby."""
        last = 0
        if owned.standby:
            for message in replica_messages(shard, owned.term, jobs, self.context.now, cuts):
                last = self.context.links.send(self.context.effects, self.context.now, owned.standby, message)
        return last

    def accept_job(self, record: JobRecord) -> None:
        """Copy a new job to the standby; the job is admitted when the standby has it."""
        owned = self.state.owned[record.shard]
        owned.last_message = self.replicate(record.shard, owned, [record], {}) or owned.last_message
        owned.admitting.append((owned.last_message if owned.standby else 0, record.id))
        self.shards.needs_release = True
        self.release_safe()

    def _find_safe_message(self, owned: OwnedShard) -> int:
        """Return the number of the last message to the standby that would survive this broker."""
        if owned.term > 1 and owned.term not in owned.accepted_terms.values():
            return -1  # an older standby could still take over with an outdated copy
        return self.context.links.link(owned.standby).firm if owned.standby else NEVER

    def release_safe(self) -> None:
        """Admit, publish and acknowledge what the standby has confirmed."""
        if not self.shards.needs_release:
            return
        self.shards.needs_release = False
        if self._budget_effects is not self.context.effects:  # another event
            self._budget_effects, self._budget = self.context.effects, PUBLISH_MAX
        for shard, owned in self.state.owned.items():
            if (
                owned.copy_complete_message
                and owned.copy_complete_message <= self.context.links.link(owned.standby).firm
            ):
                owned.copy_complete_message = 0
                self.register_standby(shard)
            if not (owned.publishing or owned.admitting or owned.pending_acks or owned.is_republishing()):
                continue
            safe = self._find_safe_message(owned)
            if owned.publishing or owned.is_republishing():
                self._publish_safe(owned, safe)
            while owned.admitting and owned.admitting[0][0] <= safe:
                _, job = owned.admitting.pop(0)
                record = self.context.jobs.get(job)
                if record is not None and not record.admitted and not self.duplicates.must_wait(record):
                    self.admit_job(record)
            if owned.pending_acks and owned.pending_acks[0][0] <= safe:
                self._ack_ends(owned, safe)

    def _ack_ends(self, owned: OwnedShard, safe: int) -> None:
        """Queue acknowledgements of the ends that wardens may forget."""
        settled: dict[str, list[tuple[TaskId, int]]] = {}
        count = 0
        for number, cluster, task, attempt in owned.pending_acks:
            if number > safe:
                break
            entries = settled.get(cluster)
            if entries is None:
                entries = settled[cluster] = []
            entries.append((task, attempt))
            count += 1
        del owned.pending_acks[:count]
        for cluster, entries in settled.items():
            self.context.end_acks.add(self.context.now, cluster, entries)

    def _publish_safe(self, owned: OwnedShard, safe: int) -> None:
        """Publish what would survive this broker, within the budget of this event: first what is published
        again."""
        next_message = owned.next_republishing()
        if next_message <= safe and next_message < NEVER:
            self._budget -= owned.take_republishing(safe, self._budget, self.context.effects)
            next_message = owned.next_republishing()
        is_ready = next_message <= safe and next_message < NEVER
        if not is_ready:
            self._publish(owned, safe)
        if is_ready or (owned.publishing and 0 <= owned.publishing[0][0] <= safe):
            self.state.progress_at = self.context.now

    def _publish(self, owned: OwnedShard, safe: int) -> None:
        """Publish ends in their order; before they are safe a standby could still decide otherwise."""
        count = 0
        effects = self.context.effects
        for number, subject, attempt, state in owned.publishing:
            if not 0 <= number <= safe or count == self._budget:
                break
            count += 1
            if attempt >= 0:
                effects.append(TaskSettled(TaskId(subject), attempt, OUTCOME_BY_STATE[state]))
            else:
                effects.append(JobSettled(JobId(subject), OUTCOME_BY_STATE[state]))
                self.lifecycle.dependencies.announce(JobId(subject))
        self._budget -= count
        del owned.publishing[:count]

    def admit_job(self, record: JobRecord) -> None:
        """Acknowledge a job that is safe, and let it run."""
        record.admitted = True
        if not record.cancelled:  # else it is known since then
            self.context.history.add_job(record)
        if record.client:
            self.context.effects.append(JobAccepted(record.client, record.request, record.id))
        if record.cancelled:
            return
        self.lifecycle.begin(record)

    def find_leftovers(self) -> list[str]:
        """List what should not exist when no work is left."""
        complaints = []
        for shard, owned in self.state.owned.items():
            ours = (owned.pending_acks, owned.unsent_acks, owned.publishing, owned.admitting)
            waiting = (*ours, owned.republishing, owned.republishing_columns)
            if any(waiting):
                complaints.append(f"shard {shard} has unfinished entries {[len(part) for part in waiting]}")
        return complaints

    def on_attempts_ended(self, cluster: str, ends: Sequence[AttemptEnd]) -> None:
        """Handle ended attempts. The warden may forget each at once, or when the standby knows it, if it
        mattered."""
        jobs, shards, on_attempt_ended = self.context.jobs, self.state.owned, self.lifecycle.on_attempt_ended
        keys = self.lifecycle.placement.keys
        keys.outdated = {}
        is_unsent = False
        unreplicated: UnreplicatedEnds | None = None
        for end in ends:
            task = end.task
            record = jobs.get(JobId(task >> INDEX_BITS))
            owned = shards.get(record.shard) if record is not None else None
            if record is None or not on_attempt_ended(record, task & INDEX_MASK, end) or owned is None:
                unreplicated = unreplicated or UnreplicatedEnds(shards.values())
                is_transferred = task >> INDEX_BITS in self.state.transferred_jobs
                if (task, end.attempt) in unreplicated.ends or is_transferred:
                    continue  # acknowledged when the standby knows it, or by the new owner
                owned = unreplicated.find_shard(task)
                if owned is None:
                    self.context.end_acks.add(self.context.now, cluster, [(task, end.attempt)])
                    continue
                self.context.mark("broker.old_end_kept")
            if owned.standby:
                owned.unsent_acks.append((cluster, task, end.attempt))
                is_unsent = True
            else:
                owned.pending_acks.append((0, cluster, task, end.attempt))
                self.shards.needs_release = True
        if is_unsent:
            self.end_log.schedule_updates()
        keys.update_outdated()
        keys.outdated = None

    def tick(self) -> None:
        """Send the standbys what has ended."""
        self.end_log.send_updates()
        self.release_safe()
