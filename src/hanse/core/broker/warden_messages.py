"""Messages of wardens to a broker: replies to claims, starts and ends of tasks, views, and heartbeats."""

from collections.abc import Callable
from typing import Any

from hanse.core.broker.cluster_view import WARY_TIME, ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.replication import ShardReplication
from hanse.core.broker.failover.standby import StandbyShards
from hanse.core.broker.grant_binding import GrantBinding
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import CLAIMED, PLACED
from hanse.core.broker.placement import BrokerPlacement
from hanse.model.ids import TaskId, index_of, job_of
from hanse.model.messages import (
    ClaimReply,
    ClusterDelta,
    ClusterSnapshot,
    Delta,
    HeartbeatReply,
    RefusalReason,
    RefusedTask,
    RequestSnapshot,
    TaskUpdates,
    WardenHeartbeat,
)


class WardenMessages:
    """Handlers of the messages of wardens."""

    def __init__(
        self, context: BrokerContext, placement: BrokerPlacement, grants: GrantBinding,
        lifecycle: JobLifecycle, replication: ShardReplication, standby_shards: StandbyShards,
    ) -> None:  # fmt: skip
        self._context = context
        self._placement = placement
        self._grants = grants
        self._lifecycle = lifecycle
        self._withdrawal = lifecycle.withdrawal
        self._replication = replication
        self._standby = standby_shards

    def handlers(self) -> dict[type, Callable[[str, Any], None]]:
        """Return the handlers by message type."""
        return {
            TaskUpdates: self.on_task_updates,
            ClaimReply: self.on_claim_reply,
            WardenHeartbeat: self.on_warden_heartbeat,
            ClusterDelta: self.on_cluster_delta,
            ClusterSnapshot: self.on_cluster_snapshot,
        }

    def on_cluster_delta(self, source: str, body: ClusterDelta) -> None:
        """Apply what has changed in a cluster."""
        self._apply_delta(self._context.view_by_name[source], body.delta)

    def on_cluster_snapshot(self, source: str, snapshot: ClusterSnapshot) -> None:
        """Replace the view of a cluster, and try what waits."""
        view = self._context.view_by_name[source]
        if view.is_open:
            view.state.seen_at = self._context.now
            view.apply_snapshot(snapshot)
            self._placement.place_all()

    def on_claim_reply(self, source: str, reply: ClaimReply) -> None:
        """Handle a warden's answer to a claim: placed tasks, and refused ones."""
        context = self._context
        view = context.view_by_name[source]
        batches = view.resolve_claim(reply.number)
        if reply.delta is not None:
            self._apply_delta(view, reply.delta, place=False)
        for batch in batches:
            record = context.jobs.get(batch.job)
            if record is None:
                continue
            state, attempts = record.state, record.attempt
            for index, attempt in zip(batch.tasks, batch.attempts, strict=True):
                if state[index] == CLAIMED and attempts[index] == attempt:
                    state[index] = PLACED
            self._withdrawal.expect_start(view.index, batch)
        if reply.substituted:
            context.history.substitute_nodes(source, reply.substituted)
        if reply.refused:
            self._requeue_refused(view, reply.refused)
        elif self._grants.spare_offers:
            self._grants.use_spare_offers(view.index)

    def _requeue_refused(self, view: ClusterView, refused: tuple[RefusedTask, ...]) -> None:
        """Queue refused tasks again. Room that was granted meanwhile is used first. For the rest the broker
        registers demand: a new claim at such a moment would be refused again."""
        context = self._context
        view.state.wary_until = context.now + WARY_TIME
        for entry in refused:
            if entry.reason in (RefusalReason.STALE_ROUND, RefusalReason.FENCED):
                view.state.closed_until = context.now + context.timings.beat
            context.mark(f"broker.refused_{entry.reason}")
            self._lifecycle.on_attempt_refused(entry.task, entry.attempt, entry.reason)
        self._grants.use_spare_offers(view.index)
        for number in {self._line_of(entry.task): None for entry in refused}:
            if number >= 0:
                for each in context.views:
                    each.state.exhausted[number] = True
                self._placement.place_line(number)  # this records that it waits

    def _line_of(self, task: TaskId) -> int:
        """Return the line of a task's group, or -1."""
        record = self._context.jobs.get(job_of(task))
        return -1 if record is None else record.lines[record.group_of(index_of(task))]

    def on_task_updates(self, source: str, updates: TaskUpdates) -> None:
        """Handle starts, ends and offers of room."""
        estimates = self._placement.estimates
        if estimates.is_on:
            estimates.on_task_updates(updates)
        if updates.started:
            self._lifecycle.on_attempts_started(updates.started)
        if updates.ended:
            self._replication.on_attempts_ended(source, self._standby.filter_ends(source, updates.ended))
        if updates.offers:  # after the ends, which may have changed the order
            self._grants.on_offers(self._context.view_by_name[source].index, updates.offers)

    def _apply_delta(self, view: ClusterView, delta: Delta, place: bool = True) -> None:
        context = self._context
        view.state.seen_at = context.now
        if not view.apply_delta(delta):
            context.mark("broker.view_gap")
            context.links.send_soft(context.effects, view.name, RequestSnapshot(view.cluster))
        elif place and not view.state.exhausted:
            self._placement.place_all()

    def on_warden_heartbeat(self, source: str, beat: WardenHeartbeat) -> None:
        """Note that a cluster lives, renew its leases for own shards, and request what the view lacks."""
        context = self._context
        view = context.view_by_name[source]
        view_state = view.state
        reopened = view_state.given_up
        if beat.sent_at > view_state.echo:
            view_state.echo = beat.sent_at
        elif not reopened:
            return  # a newer heartbeat came first
        view_state.renewed_at, view_state.drains = context.now, beat.drains
        if reopened:
            view_state.given_up = False
        for shard, number in beat.rounds:
            if number > view_state.rounds.get(shard, 0):
                view_state.rounds[shard] = number
                reopened = self._replication.teardown.has_grown = True
        renewed = view.find_renewable(self._context.owned_shards.ids, beat.rounds)
        context.links.send_soft(context.effects, source, HeartbeatReply(beat.sent_at, renewed))
        gap = view_state.snapshot is None or beat.epoch != view_state.snapshot.epoch
        late = gap or (
            beat.version > view_state.version and context.now - view_state.seen_at > context.timings.beat
        )
        if (view.is_rewound(beat.epoch, beat.version) or late) and view.is_open:
            context.links.send_soft(context.effects, source, RequestSnapshot(view.cluster))
        if reopened:
            view_state.exhausted.clear()
            self._placement.place_all()
