"""Warden: the authority of one cluster. It accepts, substitutes or refuses claims, grants freed room, runs
accepted work through its runners, and reports to every broker.

``Warden`` passes events to its parts: ``ledger``, ``grants``, ``claims``, ``attempts``, ``runner_sessions``,
``ownership`` and ``state_publisher``. The README of this folder is the theory of operation.
"""

# ruff: noqa: PLR1730  for every event: a call of min() costs more than the comparisons

from collections.abc import Callable
from typing import Any

from hanse.core.config import WardenConfig
from hanse.core.messaging.link import NEVER, LinkSet
from hanse.core.warden.attempts import WardenAttempts
from hanse.core.warden.claim_acceptance import ClaimAcceptance
from hanse.core.warden.drains import Drains
from hanse.core.warden.grants import Grants
from hanse.core.warden.ledger import Ledger
from hanse.core.warden.ownership import Ownership
from hanse.core.warden.runner_sessions import RunnerSessions
from hanse.core.warden.state import WardenParts, dump_parts, restore_parts
from hanse.core.warden.state_publisher import StatePublisher
from hanse.core.warden.step_random import StepRandom
from hanse.core.warden.unacked_ends import UnackedEnds
from hanse.model.effects import Effect, WakeAt
from hanse.model.events import Booted, DrainRequested, Event, MessageReceived, Tick
from hanse.model.ids import TaskId
from hanse.model.messages import (
    AbortTakeover,
    AckEnds,
    CancelAttempts,
    Claim,
    ClaimReply,
    Demand,
    DemandLine,
    HeartbeatReply,
    OpenSession,
    OwnershipReply,
    RefusedTask,
    RegisterStandby,
    RequestSnapshot,
    RequestTakeover,
    RunnerHeartbeat,
    RunnerReport,
)
from hanse.model.messages.shard_teardown import CloseShard
from hanse.model.resources import Resources, Vector
from hanse.policy.interface import NodeRanker


class Warden:
    """Warden machine. ``handle`` takes events in order; see ``core.machine``."""

    def __init__(self, config: WardenConfig, node_ranker: NodeRanker) -> None:
        self.config = config
        self.name = config.name
        self.marks: dict[str, int] = {}
        self._timings = config.timings
        self.links = self._links = LinkSet(config.name, config.timings, config.retired)
        self._ledger = Ledger(config.name, config.nodes, config.reserve, config.first_port)
        self.drains = Drains(self._ledger)
        self._random = StepRandom()
        unacked_ends = UnackedEnds()
        self._grants = Grants(config, self._ledger, unacked_ends, self._random, node_ranker, self._mark)
        self._sessions = RunnerSessions(config, self._mark)
        self._ownership = Ownership(config, self._mark)
        self.attempt_tracker = self._attempts = WardenAttempts(
            self._ledger,
            self._grants,
            self._sessions,
            self._ownership,
            unacked_ends,
            config.timings.started_linger,
            self._mark,
        )
        self._claims = ClaimAcceptance(
            self._ledger, self._grants, self._sessions, self._ownership, self._mark
        )
        self._publisher = StatePublisher(config, self._ledger, self.drains, self._links)
        self._last_heard: dict[str, int] = {}
        self._wake_at = NEVER
        self._due = 0
        self._due_without_leases = -1
        """Due time without regard to leases; -1: to be computed."""
        self._effects: list[Effect] = []
        self._handlers = self._handlers_by_type()

    # --- events --------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        """Handle one event; return the effects for the shell, in order."""
        effects: list[Effect] = []
        self._effects = effects
        self._random.steps += 1
        now = event.at
        late = now >= self._due
        if late and now >= self._ownership.due:  # a lapse is never due before ``_due``
            self._expire_leases(now)
        idle = True
        if type(event) is MessageReceived:
            envelope = event.envelope
            for body in self._links.receive(now, envelope):
                handler = self._handlers.get(type(body))
                if handler is not None:  # else an acknowledgement only
                    handler(now, envelope.source, body)
            idle = envelope.seq <= 0
        elif type(event) is not Tick:
            self._on_event(event)
            idle, late = False, now >= self._due
        if late:
            self._tick(now)
            idle = False
        grants, ledger, sessions = self._grants, self._ledger, self._sessions
        publisher = self._publisher
        if grants.freed_nodes or ledger.affinity.changed:
            self._serve(now)
        if sessions.pending_orders or grants.offers or grants.victims or self._attempts.pending_ends:
            self._flush(now)
            idle = False
        if ledger.touched or (publisher.checked_version != ledger.version and publisher.delta_at == NEVER):
            publisher.schedule_deltas(now)
            idle = False
        # Soft messages and early ticks change no due times but those of leases that we hold or grant.
        due = self._due
        if (
            idle
            and due == self._due_without_leases
            and now < self._wake_at
            and self._ownership.due >= due <= sessions.due
        ):
            return effects
        self._schedule_wake(now)
        return effects

    def _on_event(self, event: Event) -> None:
        if type(event) is Booted:
            self._on_booted(event)
        elif type(event) is DrainRequested:
            self._grants.freed_nodes += self.drains.on_drain_requested(event)
            # Brokers need the reason now, not only the loss of room.
            self._publisher.beat_at = self._due = event.at

    def _on_booted(self, event: Booted) -> None:
        self._random.seed, self._wake_at, self._due = event.seed, NEVER, 0
        if event.epoch > 1:
            self._mark("warden.restarted")
        self._links.boot(event.at)
        self._sessions.boot(event.at)
        self._publisher.boot(event.epoch, event.at)
        self._last_heard |= dict.fromkeys(self.config.active_brokers, event.at)
        self._grants.silent_brokers |= dict.fromkeys(self.config.retired, True)

    def _handlers_by_type(self) -> dict[type, Callable[[int, str, Any], None]]:
        return {
            RunnerReport: self._attempts.on_runner_report,
            Claim: self._on_claim,
            Demand: lambda now, broker, demand: self._on_demand(now, broker, demand.lines),
            RunnerHeartbeat: self._on_runner_heartbeat,
            HeartbeatReply: self._on_heartbeat_reply,
            AckEnds: self._on_ack_ends,
            CancelAttempts: self._attempts.on_cancel_attempts,
            RequestSnapshot: lambda _now, broker, _: self._publisher.send_snapshot(self._effects, broker),
            OpenSession: self._on_open_session,
            RegisterStandby: self._on_register_standby,
            RequestTakeover: self._on_request_takeover,
            AbortTakeover: self._on_abort_takeover,
            CloseShard: self._on_close_shard,
        }

    def _on_ack_ends(self, _now: int, _broker: str, message: AckEnds) -> None:
        self._attempts.on_ends_acked(zip(message.tasks, message.attempts, strict=True))

    def _on_open_session(self, now: int, runner: str, message: OpenSession) -> None:
        self._attempts.on_open_session(self._links, now, runner, message)
        self._due_without_leases = -1  # the one soft message that changes other due times

    def _on_runner_heartbeat(self, now: int, runner: str, beat: RunnerHeartbeat) -> None:
        record = self._sessions.runners.get(runner)
        unsure = record is not None and record.is_unsure
        self._sessions.on_runner_heartbeat(
            self._links, self._effects, now, runner, beat, self._ownership.find_lapsed()
        )
        if record is not None and unsure:
            self._attempts.open_nodes(record)

    def _on_heartbeat_reply(self, now: int, broker: str, reply: HeartbeatReply) -> None:
        self._note_alive(now, broker)
        self._ownership.renew(broker, now, reply.echo, reply.shards)

    def _on_register_standby(self, now: int, broker: str, message: RegisterStandby) -> None:
        self._note_alive(now, broker)
        former_owner = self._ownership.find_owner(message.shard)
        self._links.send(self._effects, now, broker, self._ownership.on_register_standby(broker, message))
        if former_owner and self._ownership.find_owner(message.shard) != former_owner:
            self._attempts.repeat_ends(message.shard)
        self._publisher.send_snapshot(self._effects, broker)
        # It may claim only in a lease round that it knows: send it now, not with the next heartbeat.
        self._publisher.send_heartbeat(self._effects, now, broker, self._ownership.rounds(broker, now))

    def _on_abort_takeover(self, now: int, broker: str, message: AbortTakeover) -> None:
        self._links.send(self._effects, now, broker, self._ownership.on_abort_takeover(broker, message))
        self._attempts.repeat_ends(message.shard)

    def _on_close_shard(self, now: int, broker: str, message: CloseShard) -> None:
        reply = self._ownership.on_close_shard(broker, message, self._attempts.is_busy(message.shard))
        self._links.send(self._effects, now, broker, reply)

    def _note_alive(self, now: int, broker: str) -> None:
        self._last_heard[broker] = now
        silent = self._grants.silent_brokers
        if silent and broker not in self.config.retired and silent.pop(broker, False):  # those never return
            self._grants.serve_demand(now, self._grants.demand.entries_of(broker))

    # --- claims --------------------------------------------------------------------------------------------

    def _on_claim(self, now: int, broker: str, claim: Claim) -> None:
        self._note_alive(now, broker)
        self._ownership.renew(broker, now, claim.echo, self._ownership.find_renewable(claim.rounds))
        if claim.acked_ends:
            self._attempts.on_ends_acked(claim.acked_ends)
        substituted: list[tuple[TaskId, int]] = []
        refused: list[RefusedTask] = []
        fast = self._claims.accept_claim(now, broker, claim, substituted, refused)
        if claim.demand is not None:
            self._on_demand(now, broker, claim.demand)
        if fast or refused or substituted:
            delta = self._publisher.take_delta(broker)
            reply = ClaimReply(claim.number, tuple(substituted), tuple(refused), delta)
            self._links.send(self._effects, now, broker, reply)

    def _on_demand(self, now: int, broker: str, lines: tuple[DemandLine, ...]) -> None:
        self._note_alive(now, broker)
        fresh = self._grants.demand.replace(broker, lines)
        if self._grants.freed_nodes:
            self._serve(now)  # released room goes by the global order, not to this broker first
        self._grants.serve_demand(now, fresh)

    # --- shards -------------------------------------------------------------------------------------------

    def _on_request_takeover(self, now: int, broker: str, request: RequestTakeover) -> None:
        self._note_alive(now, broker)
        reply = self._ownership.on_request_takeover(broker, request)
        if reply.accepted:
            self._mark("warden.estate_adopted")
            running, ends = (
                self._attempts.find_running_attempts(request.shard),
                self._attempts.unacked_ends.find(request.shard),
            )
            reply = OwnershipReply(
                request.shard, reply.term, broker, True, request.takeover_id, tuple(running), tuple(ends)
            )
        self._links.send(self._effects, now, broker, reply)

    def _expire_leases(self, now: int) -> None:
        """End the movable attempts of shards with an expired lease, before anything else happens."""
        for shard in self._ownership.expire_leases(now):
            self._attempts.stop_lapsed(shard)

    # --- time and reports ----------------------------------------------------------------------------------

    def _tick(self, now: int) -> None:
        if self._ledger.leases:
            self._claims.expire_leases(now)
        if now >= self._sessions.forget_at:
            self._sessions.forget_now()
        if now >= self._sessions.due:
            for record in self._sessions.find_overdue(now):
                self._attempts.lose_runner(record)
        if now >= self.drains.due:
            self._grants.freed_nodes += self.drains.expire(now)
            self._publisher.beat_at = now
        if now >= self._publisher.beat_at:
            self._beat(now)
        if now >= self._attempts.starts_due:
            self._attempts.flush_starts()
        if now >= self._publisher.delta_at:
            self._publisher.send_deltas(self._effects)
        if now >= self._links.due:
            self._links.tick(self._effects, now)

    def _beat(self, now: int) -> None:
        self._publisher.beat_at = now + self._timings.beat
        before = now - self._timings.suspect_after
        brokers = self.config.active_brokers
        rounds = self._ownership.all_rounds(brokers, now)
        for broker in brokers:
            if self._last_heard[broker] < before and broker not in self._grants.silent_brokers:
                self._mark("warden.broker_silent")
                self._grants.silent_brokers[broker] = True
                self._grants.review(now)
            self._publisher.send_heartbeat(self._effects, now, broker, rounds[broker])

    def _serve(self, now: int) -> None:
        """Offer freed room; then serve demand that waited for other jobs to come or go."""
        grants = self._grants
        while grants.freed_nodes:
            nodes, grants.freed_nodes = grants.freed_nodes, []
            for node in dict.fromkeys(nodes):
                grants.serve_node(now, node)
        if self._ledger.affinity.changed:
            grants.serve_affinity(now)

    def _flush(self, now: int) -> None:
        """Send everything that this step made worth sending."""
        grants = self._grants
        self._attempts.stop_victims()
        if self._sessions.pending_orders:
            self._sessions.send_orders(self._links, self._effects, now)
        if grants.offers or self._attempts.pending_ends:
            self._attempts.send_updates(self._links, self._effects, now)

    def _schedule_wake(self, now: int) -> None:
        """Ask for a tick at the next due time, unless an earlier one will come anyway."""
        sessions, leases, publisher = self._sessions, self._ledger.leases, self._publisher
        due = self._links.due
        if publisher.beat_at < due:
            due = publisher.beat_at
        if publisher.delta_at < due:
            due = publisher.delta_at
        if self.drains.due < due:
            due = self.drains.due
        if self._attempts.starts_due < due:
            due = self._attempts.starts_due
        if sessions.forget_at < due:
            due = sessions.forget_at
        if leases:
            until = next(iter(leases.values())).until  # the oldest comes first
            if until < due:
                due = until
        self._due_without_leases = due
        if sessions.due < due:
            due = sessions.due
        if self._ownership.due < due:
            due = self._ownership.due
        self._due = due
        if due < self._wake_at or now >= self._wake_at:
            self._wake_at = due
            self._effects.append(WakeAt(due))

    def _mark(self, name: str) -> None:
        self.marks[name] = self.marks.get(name, 0) + 1

    # --- for the shell -------------------------------------------------------------------------------------

    def advertised_free(self) -> list[Vector]:
        """Return the advertised room of each node, as a broker's view should show it."""
        return self._ledger.advertised_free_all(range(self._ledger.nodes))

    @property
    def epoch(self) -> int:
        """Number of starts."""
        return self._publisher.epoch

    def states(self) -> list[tuple[bool, bool, Vector]]:
        """Return for each node whether it is up, whether it drains, and its advertised room."""
        return self._ledger.states()

    def resources_in_use(self) -> list[Resources]:
        """Return what attempts and grants hold of each node."""
        return self._ledger.in_use()

    @property
    def attempt_count(self) -> int:
        """Number of attempts that are ordered or run."""
        return len(self._ledger.attempts)

    def find_leftovers(self) -> list[str]:
        """List what should not exist when no work is left."""
        return self._attempts.find_leftovers() + self._links.find_leftovers()

    def shards(self) -> dict[str, int]:
        """Return the shards that it knows, and the latest term of each."""
        return {name: record.term for name, record in self._ownership.shards.items()}

    def check(self) -> None:
        """Assert invariants across the parts."""
        self._ledger.check()
        self._grants.check()
        self.drains.check()
        self._links.check()
        self._ownership.check()
        assert len(self._ledger.attempts) <= self.config.runs_max

    def dump(self) -> bytes:
        """Return the whole state."""
        return dump_parts(self._parts(), self._wake_at, self._due, self._last_heard)

    def restore(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        self._wake_at, self._due, self._last_heard = restore_parts(self._parts(), state)
        self._due_without_leases = -1

    def _parts(self) -> WardenParts:
        return WardenParts(
            self._ledger,
            self.drains,
            self._grants,
            self._sessions,
            self._ownership,
            self._attempts,
            self._links,
            self._publisher,
            self._random,
        )
