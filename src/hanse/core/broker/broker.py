"""Broker: accepts jobs, keeps a view of every cluster, and proposes placements; wardens decide.

``Broker`` passes events to its parts, which share a ``BrokerContext`` and get each other at construction. The
README of this folder is the theory of operation.
"""

# ruff: noqa: PLR1730, FURB136  for every event: a call of min() costs more than the comparisons

from collections.abc import Callable, Collection
from typing import Any

from hanse.core.broker.admission import Admission
from hanse.core.broker.cluster_lifecycle import ClusterLifecycle
from hanse.core.broker.cluster_view import ViewState
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.end_log import EndLog
from hanse.core.broker.failover.orphaned_jobs import OrphanedJobs
from hanse.core.broker.failover.redirects import find_answering_broker
from hanse.core.broker.failover.replication import ShardReplication
from hanse.core.broker.failover.standby import StandbyShard, StandbyShards
from hanse.core.broker.failover.takeover import ShardTakeover
from hanse.core.broker.grant_binding import GrantBinding
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.placement import BrokerPlacement
from hanse.core.broker.state import BrokerState, decode_state, encode_state
from hanse.core.broker.warden_messages import WardenMessages
from hanse.core.config import BrokerConfig
from hanse.core.messaging.link import NEVER
from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.effects import Effect, WakeAt
from hanse.model.events import (
    AdviceReceived,
    Booted,
    CancelRequested,
    Event,
    JobSubmitted,
    MessageReceived,
    Tick,
)
from hanse.model.ids import JobId, ShardId, job_text
from hanse.model.messages import Gossip, JobEnded, OwnershipReply, OwnershipTransferred, RequestSnapshot
from hanse.model.resources import Vector
from hanse.policy.interface import ClusterRanker, Placer, QueueOrder, Sizer


class Broker:
    """Broker machine. ``handle`` takes events in order; see ``core.machine``."""

    def __init__(
        self, config: BrokerConfig, order: QueueOrder, placer: Placer, rank: ClusterRanker, sizer: Sizer
    ) -> None:
        self.config = config
        self.name = config.name
        self._context = BrokerContext(config, order, placer, rank, sizer)
        self.marks, self.links = self._context.marks, self._context.links
        self._owned_shards = self._context.owned_shards
        self._placement = BrokerPlacement(self._context)
        self._standby = StandbyShards(self._context)
        end_log = EndLog(self._context)
        self._lifecycle = JobLifecycle(self._context, self._placement, self._standby, end_log)
        self._withdrawal = self._lifecycle.withdrawal
        self._grants = GrantBinding(self._context, self._placement, self._withdrawal)
        self._replication = ShardReplication(self._context, self._lifecycle, end_log, self._standby)
        self._takeover = ShardTakeover(self._context, self._lifecycle, self._replication, self._standby)
        self._warden_messages = WardenMessages(
            self._context, self._placement, self._grants, self._lifecycle, self._replication, self._standby
        )
        self._orphaned = OrphanedJobs(self._context, self._lifecycle, self._replication)
        self._admission = Admission(self._context, self._lifecycle, self._replication)
        self._advice = self._placement.sizing.advice
        self._cluster_lifecycle = ClusterLifecycle(self._context, self._lifecycle)
        self.epoch = 0
        """Number of starts; read only."""
        self._beat_at, self._force_flush = NEVER, False
        self._wake_at, self._due = NEVER, 0
        self._handlers = self._handlers_by_type()

    # --- events --------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        """Handle one event; return the effects for the shell, in order."""
        context = self._context
        effects: list[Effect] = []
        context.effects = effects
        context.now = now = event.at
        context.steps += 1
        idle = True
        if type(event) is MessageReceived:
            envelope = event.envelope
            for body in context.links.receive(now, envelope):
                handler = self._handlers.get(type(body))
                if handler is not None:  # else an acknowledgement only
                    handler(envelope.source, body)
            idle = envelope.seq <= 0
        elif type(event) is not Tick:
            self._on_event(event)
            idle = False
        if now >= self._due:
            self._tick(now)
            idle = False
        placement = self._placement
        if (
            self._owned_shards.needs_release
            or placement.touched_lines
            or self._withdrawal.cancels
            or self._advice.is_ready
            or self._force_flush
        ):
            self._flush()
        elif idle and now < self._wake_at:
            return effects  # an early tick, or a soft message without consequences: nothing new is due
        self._schedule_wake(now)
        return effects

    def _flush(self) -> None:
        """Send everything that this step made worth sending."""
        if self._owned_shards.needs_release:
            self._replication.release_safe()  # so that jobs admitted now are claimed now
        if self._placement.touched_lines or self._force_flush:  # claims and releases touch their lines
            self._placement.flush(self._force_flush)
            self._force_flush = False
        if self._withdrawal.cancels:
            self._withdrawal.flush()
        if self._advice.is_ready:
            self._placement.sizing.request_advice()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, JobSubmitted):
            self._admission.on_job_submitted(event)
        elif isinstance(event, CancelRequested):
            self._admission.on_cancel_requested(event)
        elif isinstance(event, Booted):
            self._on_booted(event)
        elif isinstance(event, AdviceReceived):
            self._placement.on_advice_received(event)

    def _on_booted(self, event: Booted) -> None:
        context = self._context
        self.epoch, context.seed = event.epoch, event.seed
        self._wake_at, self._due = NEVER, 0
        if event.epoch > 1:
            context.mark("broker.restarted")
        context.gossip.boot(event.at, event.epoch)
        context.links.boot(event.at)
        for view in context.views:
            view.state.renewed_at = event.at  # a grantor that restarts adds a whole lease
            view.state.given_up = False
            if view.is_open:
                context.links.send_soft(context.effects, view.name, RequestSnapshot(view.cluster))
        self._replication.boot()
        self._placement.sizing.advice.boot()
        self._beat_at = event.at
        self._force_flush = True

    def _handlers_by_type(self) -> dict[type, Callable[[str, Any], None]]:
        return {
            **self._warden_messages.handlers(),
            OwnershipReply: self._on_ownership_reply,
            Gossip: self._on_gossip,
            OwnershipTransferred: self._on_ownership_transferred,
            **self._lifecycle.dependencies.handlers(),
            JobEnded: self._on_job_ended,
            **self._standby.handlers(),
            **self._replication.teardown.handlers(),
            **self._replication.duplicates.handlers(),
            DurationStatsUpdate: self._placement.on_duration_stats_update,
        }

    def _on_gossip(self, _: str, gossip: Gossip) -> None:
        self._context.gossip.on_gossip(self._context.now, gossip)
        if self._cluster_lifecycle.not_open_yet:
            self._cluster_lifecycle.open_known()

    def _on_ownership_reply(self, source: str, body: OwnershipReply) -> None:
        (self._takeover if body.takeover_id else self._replication).on_ownership_reply(source, body)

    def _on_job_ended(self, source: str, body: JobEnded) -> None:
        self._lifecycle.dependencies.on_job_ended(source, body)
        self._orphaned.on_job_ended(source, body)

    def _on_ownership_transferred(self, source: str, body: OwnershipTransferred) -> None:
        self._takeover.on_ownership_transferred(source, body)
        self._force_flush = True

    # --- time ----------------------------------------------------------------------------------------------

    def _tick(self, now: int) -> None:
        context = self._context
        lifecycle, grants = self._lifecycle, self._grants
        if now >= self._beat_at:
            self._beat(now)
        expected, deadlines = self._withdrawal.expected_starts, lifecycle.deadlines
        if (expected and now >= expected[0].due) or (deadlines and now >= deadlines[0][0]):
            lifecycle.tick()
        if now >= lifecycle.large_cancellations.due:
            lifecycle.large_cancellations.step(now)
        if grants.offers and now >= grants.offers[0][2]:
            grants.bind_offers()
        if grants.spare_offers and now >= grants.spare_offers[0][2]:
            grants.use_spare_offers()
        if now >= self._owned_shards.state.progress_at:
            self._replication.tick()
        if now >= self._placement.finish.due:
            self._placement.end_limits()
        if now >= context.end_acks.state.due:
            context.end_acks.tick(context.effects, now)
        if now >= context.links.due:
            context.links.tick(context.effects, now)

    def _beat(self, now: int) -> None:
        context = self._context
        self._beat_at = now + context.timings.beat
        context.gossip.told_version = self._replication.find_tellable_version()
        peers, gossip = context.gossip.next_gossip(context.seed)
        for peer in peers:
            context.links.send_soft(context.effects, peer, gossip)
        context.gossip.suspect_silent(now)
        self._placement.sizing.send_updates()
        self._replication.review()
        self._takeover.review()
        self._orphaned.review()
        if self._cluster_lifecycle.give_up_silent(now):
            self._replication.teardown.has_grown = True
        if self._lifecycle.dependencies.unknown_jobs:
            self._lifecycle.dependencies.repeat_questions()
        sizing = self._placement.sizing
        if sizing.waiting:
            self._placement.resize(sizing.find_long_waiting())
        sizing.advice.on_heartbeat(bool(sizing.waiting))
        if context.queue.has_waiting():
            self._placement.place_all()
            self._placement.demand_publisher.repeat_stale()
        elif self._placement.demand_publisher.is_outdated:
            self._placement.demand_publisher.repeat_stale()

    def _schedule_wake(self, now: int) -> None:
        """Ask for a tick at the next due time, unless an earlier one will come anyway."""
        context, grants, deadlines = self._context, self._grants, self._lifecycle.deadlines
        expected = self._withdrawal.expected_starts
        due = self._beat_at if self._beat_at < context.links.due else context.links.due
        if self._owned_shards.state.progress_at < due:
            due = self._owned_shards.state.progress_at
        if expected and expected[0].due < due:
            due = expected[0].due
        if self._placement.finish.due < due:
            due = self._placement.finish.due
        if context.end_acks.state.due < due:
            due = context.end_acks.state.due
        if self._lifecycle.large_cancellations.due < due:
            due = self._lifecycle.large_cancellations.due
        if deadlines and deadlines[0][0] < due:
            due = deadlines[0][0]
        if grants.offers and grants.offers[0][2] < due:
            due = grants.offers[0][2]
        if grants.spare_offers and grants.spare_offers[0][2] < due:
            due = grants.spare_offers[0][2]
        self._due = due
        if due < self._wake_at or now >= self._wake_at:
            self._wake_at = due
            context.effects.append(WakeAt(due))

    # --- for the shell -------------------------------------------------------------------------------------

    def believed_free(self, cluster: str) -> list[Vector] | None:
        """Return the capacity of each node of a cluster that this broker believes to be free."""
        return self._context.view_by_name[cluster].confirmed_free()

    def view_state_of(self, cluster: str) -> ViewState:
        """Return the view of a cluster; read only."""
        return self._context.view_by_name[cluster].state

    def count_tasks(self, job: JobId) -> int | None:
        """Count the tasks of a job that is ours or kept for a peer; None for any other job."""
        record = self._context.jobs.get(job)
        return len(record.state) if record is not None else self._standby.count_tasks(job)

    def is_owner_of(self, job: JobId) -> bool:
        """True if a job is ours and has not ended."""
        return job in self._context.jobs

    def find_answering_broker(self, job: JobId, asked: Collection[str] = ()) -> str:
        """Return the broker that answers for a job, other than those already ``asked``; see ``redirects``."""
        state = self._owned_shards.state
        return find_answering_broker(job, asked, self._context, self._lifecycle, state, self._standby)

    def is_without_standby(self) -> bool:
        """True if some of its jobs have no standby, because no peer can be reached."""
        return any(not one.standby for one in self._owned_shards.state.owned.values())

    def count_unreplicated(self) -> int:
        """Count the jobs and messages that would be lost with this broker."""
        return self._replication.teardown.count_unreplicated() + self._standby.count_takeovers()

    def count_exposed(self) -> int:
        """Count the jobs without a complete copy elsewhere, and what others were not sent yet."""
        return self._replication.teardown.count_exposed()

    def standby_shards(self) -> dict[ShardId, StandbyShard]:
        """Return the shards of which it keeps copies; read only."""
        return self._standby.shards

    def is_alive(self, broker: str) -> bool:
        """True if a peer is not suspected of being dead."""
        return self._context.gossip.is_alive(broker)

    def shards(self) -> tuple[list[str], list[str]]:
        """Return the shards that it owns, and those of which it keeps copies."""
        return list(self._owned_shards.state.owned), list(self._standby.shards)

    def find_leftovers(self) -> list[str]:
        """List what should not exist when no work is left."""
        context = self._context
        complaints = [f"job {job_text(job)} has not ended" for job in context.jobs]
        complaints += context.queue.find_leftovers()
        for view in context.views:
            complaints += view.find_leftovers()
        complaints += context.links.find_leftovers() + self._replication.find_leftovers()
        return complaints + self._standby.find_leftovers()

    def check(self) -> None:
        """Assert invariants across the parts."""
        context = self._context
        context.links.check()
        self._cluster_lifecycle.check()
        context.gossip.check()
        self._replication.check()
        for part in (self._placement.demand_publisher, self._placement.keys, self._placement.sizing):
            part.check()
        assert len(context.jobs) <= self.config.jobs_max
        self._lifecycle.check()
        for view in context.views:
            view.check()
        context.queue.check_counts(context.jobs)

    def dump(self) -> bytes:
        """Return the whole state."""
        context, placement, lifecycle = self._context, self._placement, self._lifecycle
        dependencies = lifecycle.dependencies
        state = BrokerState(
            epoch=self.epoch,
            seed=context.seed,
            steps=context.steps,
            armed=self._wake_at,
            due=self._due,
            post_due=context.links.due,
            serial=self._admission.serial,
            beat_at=self._beat_at,
            beat=context.gossip.beat,
            known_members=context.gossip.known,
            jobs=context.jobs,  # type: ignore[arg-type]  # a job id is a number
            lines=context.queue.lines,
            free_lines=context.queue.free,
            views=[view.state for view in context.views],
            published_demand=placement.demand_publisher.published,
            best=placement.demand_publisher.best,
            offers=self._grants.offers,
            spare_offers=self._grants.spare_offers,
            expected_starts=self._withdrawal.expected_starts,
            hold_at=placement.demand_publisher.hold_at,
            ended_jobs=dependencies.ended_jobs,  # type: ignore[arg-type]
            clients=lifecycle.clients,  # type: ignore[arg-type]
            watchers=dependencies.watchers,  # type: ignore[arg-type]
            unknown=dependencies.unknown_jobs,  # type: ignore[arg-type]
            round=dependencies.round,
            deadlines=lifecycle.deadlines,  # type: ignore[arg-type]
            tasks=lifecycle.tasks,
            owned_shards=self._owned_shards.state,
            standby_shards=self._standby.shards,
            takeover_count=self._standby.takeover_count,
            end_acks=context.end_acks.state,
            sizing=placement.sizing.dump(),
            estimates=placement.estimates.dump(),
            links=context.links.links,
            slice_at=lifecycle.large_cancellations.due,
        )
        return encode_state(state)

    def restore(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        saved = decode_state(state)
        context, placement, lifecycle = self._context, self._placement, self._lifecycle
        self.epoch, self._admission.serial, self._beat_at = saved.epoch, saved.serial, saved.beat_at
        context.seed, context.steps = saved.seed, saved.steps
        context.gossip.restore(saved.epoch, saved.beat, saved.known_members)
        self._cluster_lifecycle.review()
        context.jobs = saved.jobs  # type: ignore[assignment]
        context.queue.restore(saved.lines, saved.free_lines, context.jobs)
        for view, view_state in zip(context.views, saved.views, strict=False):  # clusters may have joined
            view.restore(view_state)
        placement.restore(saved.estimates)
        self._grants.offers, self._grants.spare_offers = saved.offers, saved.spare_offers
        self._withdrawal.expected_starts = saved.expected_starts
        placement.sizing.restore(saved.sizing, context.jobs)
        placement.demand_publisher.restore(saved.published_demand, saved.best, saved.hold_at)
        lifecycle.clients, lifecycle.tasks = saved.clients, saved.tasks  # type: ignore[assignment]
        lifecycle.deadlines = saved.deadlines  # type: ignore[assignment]
        lifecycle.large_cancellations.restore(context.jobs, saved.slice_at)
        lifecycle.dependencies.restore(saved.ended_jobs, saved.watchers, saved.unknown, saved.round)  # type: ignore[arg-type]
        self._replication.restore(saved.owned_shards)
        self._standby.restore(saved.standby_shards, saved.takeover_count)
        context.end_acks.state = saved.end_acks
        context.links.restore(saved.links, saved.post_due)
        self._wake_at, self._due = saved.armed, saved.due
