"""Replication of a broker's accepted jobs to its standbys, and takeover of the shards of silent peers.

The accepted jobs of a broker form its *shard*. The README of this folder is the theory of operation: order of
messages, invariants, and why at most one broker acts for a shard.
"""

from collections.abc import Sequence
from typing import Final

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.duplicate_submissions import DuplicateSubmissions
from hanse.core.broker.failover.end_columns import CutEnds
from hanse.core.broker.failover.owned_shards import (
    OwnedShard,
    OwnedShardsState,
    UnreplicatedEnds,
    new_owned_shard,
)
from hanse.core.broker.failover.replica_updates import replica_messages, replica_update_messages
from hanse.core.broker.failover.standby import (
    ATTEMPTS_BITS,
    LatestAttempts,
    StandbyShard,
    latest_attempts,
    restore_job,
    restore_placements,
)
from hanse.core.broker.failover.teardown import ShardTeardown
from hanse.core.broker.failover.terms import TERMS_BITS
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import OUTCOME_BY_STATE, STATE_BY_OUTCOME, WAITING, JobRecord, new_record
from hanse.core.broker.loss_policy import find_unaccounted
from hanse.core.messaging.link import NEVER
from hanse.core.messaging.message_splitting import ENTRIES_MAX
from hanse.model.effects import JobAccepted, JobSettled, TaskSettled
from hanse.model.ids import INDEX_BITS, INDEX_MASK, JobId, TaskId, job_of, task_id
from hanse.model.messages import AttemptEnd, OwnershipReply, OwnershipTransferred, RegisterStandby, ShardId

PUBLISH_MAX: Final = ENTRIES_MAX
"""Ends that one event publishes; the rest follows at once, with the next event."""
UNPUBLISHED_MAX: Final = 8 * PUBLISH_MAX
"""Unpublished ends above which ending a cancelled job's tasks pauses."""


class ShardReplication:
    """Shards that one broker owns."""

    def __init__(self, context: BrokerContext, lifecycle: JobLifecycle) -> None:
        self.context = context
        self.lifecycle = lifecycle
        self.state = OwnedShardsState(0, {}, {}, {}, NEVER, [], {}, {})
        self.shard_ids: tuple[ShardId, ...] = ()
        """Ids of the owned shards, as the reply to every warden's heartbeat carries them."""
        self.teardown = ShardTeardown(context, lambda: self.state, lambda: self.base_shard)
        self.teardown.on_closed = self._update_shard_ids
        self.duplicates = DuplicateSubmissions(
            context, lifecycle, lambda: self.state, self._is_reachable, self._admit_again
        )
        self.duplicates.on_dropped = self._on_duplicate_dropped
        self.needs_release = True
        """True if something may be releasable: an entry was added, or an acknowledgement has come."""
        self._budget_effects, self._budget = context.effects, PUBLISH_MAX
        """Number of ends that the event with this list of effects may still publish."""
        context.links.on_firm_ack = self._on_firm_ack
        lifecycle.on_task_done, lifecycle.on_tasks_done = self._on_task_done, self._on_tasks_done
        lifecycle.on_job_over = self._on_job_over
        lifecycle.large_cancellations.is_held, lifecycle.large_cancellations.on_begun = (
            self._is_standby_behind,
            self.on_job_cancelled,
        )
        timings = context.timings
        self._unresponsive_after = timings.suspect_after + 2 * timings.resend_after
        """Time without any acknowledgement after which a peer counts as unreachable."""

    @property
    def base_shard(self) -> ShardId:
        """Shard that newly submitted jobs join."""
        return f"{self.context.config.name}#{self.state.generation}"

    def restore(self, state: OwnedShardsState) -> None:
        """Restore a dumped state."""
        self.state = state
        self.needs_release = self.teardown.has_grown = True
        self._update_shard_ids()

    def _update_shard_ids(self) -> None:
        """Rebuild the list of ids after a shard was added or removed."""
        self.shard_ids = tuple(self.state.owned)

    def check(self) -> None:
        """Assert that the list of ids matches the owned shards."""
        assert self.shard_ids == tuple(self.state.owned), f"{self.shard_ids} are not {list(self.state.owned)}"
        self.teardown.check()

    # --- owning --------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Create the first shard, or register every owned shard with its wardens again."""
        if not self.state.generation:
            self._create_shard()
            return
        self.teardown.boot()
        self.duplicates.mark_doubtful(self.context.jobs.values())
        for shard, owned in self.state.owned.items():
            if not owned.closed_at and not owned.copy_complete_message:
                self._register_standby(shard)

    def _create_shard(self) -> None:
        self.state.generation += 1
        self.state.owned[self.base_shard] = new_owned_shard(1, self._find_next_standby())
        self._update_shard_ids()
        self._register_standby(self.base_shard)

    def _register_standby(self, shard: ShardId) -> None:
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
            self._on_disowned(message.shard, owned, cluster, message.owner)
        elif message.owner == self.context.config.name:
            owned.disowned_by.pop(cluster, None)
            first = message.term == owned.term and owned.term not in owned.accepted_terms.values()
            owned.accepted_terms[cluster] = message.term
            if first and any(term != owned.term for term in owned.accepted_terms.values()):
                self._register_standby(
                    message.shard
                )  # accepted elsewhere: this reverts wardens that agreed to an aborted takeover
            self.needs_release = True
            self.release_safe()

    def _on_disowned(self, shard: ShardId, owned: OwnedShard, cluster: str, owner: str) -> None:
        """Note that a warden has another owner for a shard. When all have, peers took our jobs over while we
        were cut off: new jobs join a new shard at once, and the old ones wait for the message of the new
        owner."""
        if owner and owner != self.context.config.name:
            owned.disowned_by[cluster] = owner
            if shard == self.base_shard and all(
                name in owned.disowned_by for name in self.context.config.active_clusters
            ):
                self.context.mark("broker.founded_anew")
                owned.jobs_left = sum(record.shard == shard for record in self.context.jobs.values())
                self._create_shard()

    def review(self) -> None:
        """Replace unreachable standbys and repeat refused registrations, with every heartbeat."""
        if len(self.shard_ids) > 1:  # else there is only the shard that new jobs join
            self.teardown.review()
        if self.teardown.has_grown:
            self.teardown.trim()
        if self.state.doubtful:
            self.duplicates.review()
        for shard, owned in self.state.owned.items():
            if owned.closed_at:
                continue  # nothing is left of it to be taken over
            if not self._is_reachable(owned.standby):
                standby = self._find_next_standby()
                if standby != owned.standby:
                    self._change_standby(shard, owned, standby)
            elif (
                self._find_refusing(owned) and not owned.copy_complete_message and not self._has_unanswered()
            ):
                self._register_standby(shard)

    def find_tellable_version(self) -> int:
        """Return the version of the league file that peers may believe this broker uses: the own one, or the
        one before a cluster joined whose warden does not know a takeover by this broker. Nobody uses that
        cluster until then, so a former owner that missed the takeover cannot start anything there."""
        config = self.context.config
        version = config.version
        for cluster, since in zip(config.clusters, config.clusters_since, strict=False):
            is_newcomer = 0 < since <= version and cluster not in config.retired
            if is_newcomer and any(one.is_unknown_to(cluster, since) for one in self.state.owned.values()):
                version = since - 1
        return version

    def _find_next_standby(self) -> str:
        """Return the first reachable peer on the ring; "" if there is none."""
        return next((name for name in self.context.membership.ring if self._is_reachable(name)), "")

    def _is_reachable(self, peer: str) -> bool:
        """True if a peer is alive, as far as is known, and acknowledges messages. Gossip may arrive over
        other members while copies of jobs do not."""
        context = self.context
        return context.membership.is_alive(peer) and not context.links.link(peer).is_unresponsive(
            context.now, self._unresponsive_after
        )

    def _find_refusing(self, owned: OwnedShard) -> list[str]:
        """Return the clusters that have not accepted the present term."""
        term, accepted = owned.term, owned.accepted_terms
        return [cluster for cluster in self.context.config.active_clusters if accepted.get(cluster) != term]

    def _has_unanswered(self) -> bool:
        return any(
            self.context.links.link(cluster).unacked for cluster in self.context.config.active_clusters
        )

    def _change_standby(self, shard: ShardId, owned: OwnedShard, standby: str) -> None:
        self.context.mark("broker.changed_heir")
        owned.term += 1
        owned.standby = standby
        jobs = [record for record in self.context.jobs.values() if record.shard == shard]
        owned.last_message = owned.copy_complete_message = self._replicate(shard, owned, jobs, {})
        if (
            not owned.copy_complete_message
        ):  # else the old standby, which has every job, stays registered until the new one has them
            self._register_standby(shard)
        owned.pending_acks = [(owned.last_message, *entry[1:]) for entry in owned.pending_acks]
        owned.mark_sent(owned.last_message)
        owned.publishing = [(owned.last_message, *entry[1:]) for entry in owned.publishing]
        owned.cover_republishing(owned.last_message)
        owned.admitting = [(owned.last_message, job) for _, job in owned.admitting]
        self.needs_release = True
        self.release_safe()

    def _replicate(
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
        owned.last_message = self._replicate(record.shard, owned, [record], {}) or owned.last_message
        owned.admitting.append((owned.last_message if owned.standby else 0, record.id))
        self.needs_release = True
        self.release_safe()

    def _find_safe_message(self, owned: OwnedShard) -> int:
        """Return the number of the last message to the standby that would survive this broker."""
        if owned.term > 1 and owned.term not in owned.accepted_terms.values():
            return -1  # an older standby could still take over with an outdated copy
        return self.context.links.link(owned.standby).firm if owned.standby else NEVER

    def release_safe(self) -> None:
        """Admit, publish and acknowledge what the standby has confirmed."""
        if not self.needs_release:
            return
        self.needs_release = False
        if self._budget_effects is not self.context.effects:  # another event
            self._budget_effects, self._budget = self.context.effects, PUBLISH_MAX
        for shard, owned in self.state.owned.items():
            if (
                owned.copy_complete_message
                and owned.copy_complete_message <= self.context.links.link(owned.standby).firm
            ):
                owned.copy_complete_message = 0
                self._register_standby(shard)
            next_message = owned.next_republishing()
            if not (owned.publishing or owned.admitting or owned.pending_acks or next_message < NEVER):
                continue
            safe = self._find_safe_message(owned)
            if next_message <= safe and next_message < NEVER:
                self._budget -= owned.take_republishing(safe, self._budget, self.context.effects)
                next_message = owned.next_republishing()
            if next_message > safe or next_message == NEVER:
                self._publish(owned, safe)
            if (next_message <= safe and next_message < NEVER) or (
                owned.publishing and 0 <= owned.publishing[0][0] <= safe
            ):
                self.state.progress_at = self.context.now
            while owned.admitting and owned.admitting[0][0] <= safe:
                _, job = owned.admitting.pop(0)
                record = self.context.jobs.get(job)
                if record is not None and not record.admitted and not self.duplicates.must_wait(record):
                    self.admit_job(record)
            if owned.pending_acks and owned.pending_acks[0][0] <= safe:
                self._ack_ends(owned, safe)

    def _on_firm_ack(self) -> None:
        """Note that a peer has confirmed more messages, if anything of a shard waits for a confirmation."""
        for owned in self.state.owned.values():
            waits = owned.publishing or owned.admitting or owned.pending_acks or owned.copy_complete_message
            if waits or owned.next_republishing() < NEVER:
                self.needs_release = True
                return

    def _admit_again(self, records: list[JobRecord]) -> None:
        """Queue doubtful jobs for admission again after a reply."""
        queued_jobs = {job for owned in self.state.owned.values() for _, job in owned.admitting}
        for record in records:
            owned = self.state.owned.get(record.shard)
            if owned is not None and record.id not in queued_jobs:
                owned.admitting.append((owned.last_message if owned.standby else 0, record.id))
                self.needs_release = True

    def _on_duplicate_dropped(self, record: JobRecord) -> None:
        """Have the standby drop its copy of a duplicate job."""
        owned = self.state.owned.get(record.shard)
        if owned is not None and owned.standby:
            owned.forget.append(record.id)
            self._schedule_updates()

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

    def _publish(self, owned: OwnedShard, safe: int) -> None:
        """Publish what would survive this broker; before that a standby could still decide otherwise."""
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
                self.lifecycle.announce(JobId(subject))
        self._budget -= count
        del owned.publishing[:count]

    def admit_job(self, record: JobRecord) -> None:
        """Acknowledge a job that is safe, and let it run."""
        record.admitted = True
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

    # --- updates of the standby ----------------------------------------------------------------------------

    def _on_task_done(self, record: JobRecord, index: int, attempt: int) -> None:
        owned = self.state.owned[record.shard]
        task, state = TaskId(record.id << INDEX_BITS | index), record.state[index]
        if owned.standby:
            owned.publishing.append((-1, task, attempt, state))
            owned.unsent_ends.append((task, state, attempt))
            self._schedule_updates()
        else:
            owned.publishing.append((0, task, attempt, state))
            self.needs_release = True

    def _on_tasks_done(self, record: JobRecord, first: int, count: int) -> None:
        """Handle the same end of neighbours that never ran."""
        if count == 1:
            self._on_task_done(record, first, 0)
            return
        owned = self.state.owned[record.shard]
        owned.add_end_run(task_id(record.id, first), record.state[first], count)
        if owned.standby:
            self._schedule_updates()
        else:
            self.needs_release = True

    def _on_job_over(self, record: JobRecord) -> None:
        owned = self.state.owned[record.shard]
        owned.publishing.append(
            (-1 if owned.standby else 0, record.id, -1, STATE_BY_OUTCOME[record.outcome()])
        )
        if owned.jobs_left:
            owned.jobs_left -= 1
        if owned.standby:
            owned.forget.append(record.id)
            self._schedule_updates()
        else:
            self.needs_release = True

    def _is_standby_behind(self, record: JobRecord) -> bool:
        """True if so many ends wait for publication that ending large jobs must pause."""
        owned = self.state.owned[record.shard]
        runs = sum([entry[4] for entry in owned.republishing])
        return len(owned.publishing) + runs > UNPUBLISHED_MAX

    def on_job_cancelled(self, record: JobRecord) -> None:
        """Tell the standby that a job is cancelled, so that it never runs the job."""
        owned = self.state.owned.get(record.shard)
        if owned is not None and record.id not in owned.cancelled:
            owned.cancelled.append(record.id)
            self._schedule_updates()

    def on_attempts_ended(self, cluster: str, ends: Sequence[AttemptEnd]) -> None:
        """Handle ended attempts. The warden may forget each at once, or when the standby knows it, if it
        mattered."""
        jobs, shards, on_attempt_ended = self.context.jobs, self.state.owned, self.lifecycle.on_attempt_ended
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
            if owned.ack_later(cluster, task, end.attempt):
                self._schedule_updates()
            else:
                self.needs_release = True

    def _schedule_updates(self) -> None:
        due = self.context.now + self.context.timings.delta_linger
        if due < self.state.progress_at:  # noqa: PLR1730  hot: min() costs more
            self.state.progress_at = due

    def tick(self) -> None:
        """Send the standbys what has ended."""
        self.state.progress_at = NEVER
        for shard, owned in self.state.owned.items():
            if owned.standby and (owned.unsent_ends or owned.done_runs or owned.cancelled or owned.forget):
                ends, runs = owned.unsent_ends, owned.done_runs
                for message in replica_update_messages(shard, ends, runs, owned.cancelled, owned.forget):
                    owned.last_message = self.context.links.send(
                        self.context.effects, self.context.now, owned.standby, message
                    )
            owned.mark_sent(owned.last_message if owned.standby else 0)
        self.needs_release = True
        self.release_safe()

    # --- takeover by us, and by a peer ----------------------------------------------------------------------

    def take_over(self, shard: ShardId, shard_copy: StandbyShard) -> None:
        """Become the owner of a shard, after every warden has agreed."""
        context = self.context
        standby = next(
            (
                name
                for name in context.membership.ring
                if name != shard_copy.owner and context.membership.is_alive(name)
            ),
            "",
        )
        term = ((shard_copy.term >> TERMS_BITS) + 1) << TERMS_BITS
        owned = self.state.owned[shard] = new_owned_shard(term, standby)
        self._update_shard_ids()
        owned.jobs_left, owned.former_owner = len(shard_copy.jobs), shard_copy.owner
        owned.agreed_version = context.config.version
        cuts = {job: shard_copy.task_ends[job].cut() for job in shard_copy.jobs}
        records = []
        for replica in shard_copy.jobs.values():
            record = restore_job(replica, shard_copy, shard, cuts[replica.job])
            records.append(record)
            self.lifecycle.add_job(record)
            self.state.forget_transfer(record.id)
        self._register_standby(shard)
        owned.last_message = self._replicate(shard, owned, records, cuts)
        context.links.send(
            context.effects,
            context.now,
            shard_copy.owner,
            OwnershipTransferred(shard, tuple(shard_copy.jobs), term),
        )
        latest = latest_attempts(shard_copy)
        for record in records:
            task = task_id(record.id, 0)
            runs, columns = cuts[record.id]
            owned.republishing += [
                (owned.last_message, task + run[0], run[2], run[1], run[3]) for run in runs
            ]
            owned.republishing_columns += [(owned.last_message, task + one[0], *one[1:]) for one in columns]
        self.needs_release = True
        for record in records:
            self._resume(record, latest.get(record.id, {}), record.id in shard_copy.cancelled)
        for cluster, end in shard_copy.ends:
            known = latest.get(job_of(end.task), {}).get(end.task)
            if job_of(end.task) not in shard_copy.jobs or known is None or known[2] is not end:
                # an older attempt, or a job that ended before
                context.end_acks.add(context.now, cluster, [(end.task, end.attempt)])

    def _resume(self, record: JobRecord, latest: LatestAttempts, cancelled: bool) -> None:
        """Continue a job of a taken shard where it was."""
        ends = restore_placements(record, latest, lambda cluster: self.context.view_by_name[cluster].index)
        for group, part in enumerate(record.spec.groups):
            if record.unfinished[group] < part.count:
                record.last_decision[group] = ""
        record.cancelled = cancelled or record.cancelled  # a cancelled job is not queued
        lost_cluster, tasks = ("", []) if record.cancelled else find_unaccounted(self.context, record)
        for index in tasks:
            self.lifecycle.fail_lost(record, index, f"it is unknown whether it started in {lost_cluster}")
        self.lifecycle.resume(record)
        for cluster, end in ends:
            self.on_attempts_ended(cluster, (end,))
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
        owned = self.state.owned.pop(message.shard, None)
        self._update_shard_ids()
        self.teardown.on_ownership_transferred(new_owner, message, owned)
        if owned is None:
            return
        self.context.mark("broker.estate_taken")
        if message.shard == self.base_shard:
            self._create_shard()
        records = [record for record in self.context.jobs.values() if record.shard == message.shard]
        transferred_jobs = dict.fromkeys(message.jobs, True)
        self.state.record_transfer(message.jobs, new_owner, self.context.config.ended_max)
        for record in records:
            self.lifecycle.release_job(record)
            if record.id in transferred_jobs:
                if not record.admitted and record.client:
                    self.context.effects.append(JobAccepted(record.client, record.request, record.id))
            else:
                self._restart_job(record)
        owned.move_unpublished_to(self.state.owned[self.base_shard], transferred_jobs)
        self.needs_release = True
        self.lifecycle.ask_new_owner(transferred_jobs)

    def _restart_job(self, record: JobRecord) -> None:
        """Start a job again that the new owner never got: nothing of it can run anywhere."""
        self.context.mark("broker.rehomed_job")
        fresh = new_record(record.id, record.spec, self.base_shard, record.accepted_at)
        fresh.client, fresh.request = record.client, record.request
        fresh.attempt = [attempt + 1 for attempt in record.attempt]
        self.lifecycle.add_job(fresh)
        self.duplicates.mark_doubtful((fresh,))
        self.accept_job(fresh)
