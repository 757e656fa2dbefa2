"""The warden: owns the truth of one cluster. It accepts, substitutes or refuses claims, grants freed room,
runs what it accepted through its runners, and tells every broker what became of its tasks.

One class takes the events; the ledger (``core.warden.ledger``), the grants (``core.warden.grants``), the
runners (``core.warden.runner_sessions``) and the estates (``core.warden.ownership``) are its parts.
"""

# ruff: noqa: PLR1730  with every event: a call of min() costs more than all it compares

from collections.abc import Callable
from typing import Any

from hanse.core.config import WardenConfig
from hanse.core.messaging.link import NEVER, Post
from hanse.core.warden.attempts import Runs
from hanse.core.warden.claims import Acceptance
from hanse.core.warden.drains import Drains
from hanse.core.warden.grants import Grants
from hanse.core.warden.ledger import Ledger
from hanse.core.warden.ownership import Rounds, Tenure
from hanse.core.warden.runner_sessions import Roster
from hanse.core.warden.state import WardenState, decode_state, encode_state
from hanse.model.effects import Command, WakeAt
from hanse.model.events import Booted, DrainRequested, Event, Received, Tick
from hanse.model.ids import TaskId
from hanse.model.messages import (
    Adopt,
    Answer,
    Beat,
    BeatReply,
    Cancel,
    Change,
    Claim,
    Delta,
    Demand,
    DemandLine,
    Estate,
    Hello,
    Refusal,
    Refused,
    Register,
    Report,
    Return,
    RunnerBeat,
    Settle,
    Snapshot,
    Sync,
)
from hanse.model.messages.shard_teardown import Close
from hanse.model.resources import Resources, Vector
from hanse.policy.hashing import mix
from hanse.policy.node_columns import mask_indices


class Warden:
    """One cluster's authority. ``handle`` takes events in order; see ``core.machine``."""

    def __init__(self, config: WardenConfig) -> None:
        self.config = config
        self.name = config.name
        self.marks: dict[str, int] = {}
        self._timings = config.timings
        self.post = self._post = Post(config.name, config.timings, config.retired)
        self._ledger = Ledger(config.name, config.nodes, config.reserve)
        self.drains = Drains(self._ledger)
        self._grants = Grants(config, self._ledger, self._mark)
        self._grants.start = self._start
        self._roster = Roster(config, self._mark)
        self._tenure = Tenure(config, self._mark)
        self.runs = self._runs = Runs(
            self._ledger, self._grants, self._roster, self._tenure, config.timings.started_linger, self._mark
        )
        self._acceptance = Acceptance(self._ledger, self._grants, self._roster, self._mark)
        self._epoch = self._seed = self._steps = 0
        self._beat_at = self._delta_at = NEVER
        self._told: dict[str, int] = {}
        self._heard: dict[str, int] = {}
        self._armed = NEVER
        self._due = 0
        self._unleased = -1
        """What of that is due whatever becomes of leases; -1: to be looked up."""
        self._seen = 0
        """Version at which untold changes were last looked for."""
        self._layout = (
            tuple(self._ledger.capacity),
            tuple([node.attributes for node in config.nodes]),
            tuple(mask_indices(self._ledger.reserve, self._ledger.nodes)),
            config.brokers,
        )
        """What of a snapshot never changes."""
        self._out: list[Command] = []
        self._handlers = self._handlers_by_type()

    # --- events --------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Take one event; return what the shell must do, in order."""
        out: list[Command] = []
        self._out = out
        self._steps += 1
        now = event.at
        late = now >= self._due
        if late and now >= self._tenure.due:  # a lapse is never due before all that is
            self._lapse(now)
        calm = True
        if type(event) is Received:
            envelope = event.envelope
            for body in self._post.receive(now, envelope):
                handler = self._handlers.get(type(body))
                if handler is not None:  # else a bare acknowledgement
                    handler(now, envelope.source, body)
            calm = envelope.seq <= 0
        elif type(event) is not Tick:
            self._asked(event)
            calm, late = False, now >= self._due
        if late:
            self._tick(now)
            calm = False
        grants, ledger, roster = self._grants, self._ledger, self._roster
        if grants.freed or ledger.social:
            self._serve(now)
        if roster.batches or grants.offers or grants.victims or self._runs.ended:
            self._flush(now)
            calm = False
        if ledger.touched or (self._seen != ledger.version and self._delta_at == NEVER):
            self._look(now)
            calm = False
        # Soft messages and early ticks change no more of what is due than the leases that we hold or give.
        due = self._due
        if calm and due == self._unleased and now < self._armed and self._tenure.due >= due <= roster.due:
            return out
        self._arm(now)
        return out

    def _asked(self, event: Event) -> None:
        if type(event) is Booted:
            self._boot(event)
        elif type(event) is DrainRequested:
            self._grants.freed += self.drains.asked(event)
            self._beat_at = self._due = event.at  # brokers are to know why, and not only that room is gone

    def _boot(self, event: Booted) -> None:
        self._epoch, self._seed, self._armed, self._due = event.epoch, event.seed, NEVER, 0
        if event.epoch > 1:
            self._mark("warden.restarted")
        self._post.boot(event.at)
        self._roster.boot(event.at)
        self._beat_at = event.at
        for broker in self.config.serving:
            self._heard[broker] = event.at
            self._told.setdefault(broker, 0)
        self._grants.silent |= dict.fromkeys(self.config.retired, True)

    def _handlers_by_type(self) -> dict[type, Callable[[int, str, Any], None]]:
        return {
            Report: self._runs.reported,
            Claim: self._claimed,
            Demand: lambda now, broker, demand: self._demanded(now, broker, demand.lines),
            RunnerBeat: self._runner_beat,
            BeatReply: self._beat_reply,
            Settle: self._settled,
            Cancel: self._runs.cancel,
            Sync: lambda _now, broker, _: self._snapshot(broker),
            Hello: self._greeted,
            Register: self._registered,
            Adopt: self._adopted,
            Return: self._returned,
            Close: self._close,
        }

    def _settled(self, _now: int, _broker: str, settle: Settle) -> None:
        self._runs.settled(zip(settle.tasks, settle.attempts, strict=True))

    def _greeted(self, now: int, runner: str, hello: Hello) -> None:
        self._runs.greeted(self._post, now, runner, hello)
        self._unleased = -1  # the one soft message after which something else may be due

    def _runner_beat(self, now: int, runner: str, beat: RunnerBeat) -> None:
        record = self._roster.runners.get(runner)
        unsure = record is not None and record.unsure
        self._roster.beat(self._post, self._out, now, runner, beat, self._tenure.lapsed())
        if record is not None and unsure:
            self._runs.open_nodes(record)

    def _beat_reply(self, now: int, broker: str, reply: BeatReply) -> None:
        self._listen(now, broker)
        self._tenure.renew(broker, now, reply.echo, reply.estates)

    def _registered(self, now: int, broker: str, message: Register) -> None:
        self._listen(now, broker)
        former = self._tenure.owner(message.estate)
        self._post.send(self._out, now, broker, self._tenure.register(broker, message))
        if former and self._tenure.owner(message.estate) != former:
            self._runs.tell_again(message.estate)
        self._snapshot(broker)
        # It may claim only in a lease round that it knows: tell it now, not with the next beat.
        self._beat_to(now, broker, self._tenure.rounds(broker, now))

    def _returned(self, now: int, broker: str, message: Return) -> None:
        self._post.send(self._out, now, broker, self._tenure.give_back(broker, message))
        self._runs.tell_again(message.estate)

    def _close(self, now: int, broker: str, message: Close) -> None:
        answer = self._tenure.close(broker, message, self._runs.busy(message.estate))
        self._post.send(self._out, now, broker, answer)

    def _listen(self, now: int, broker: str) -> None:
        self._heard[broker] = now
        if self._grants.silent and self._grants.silent.pop(broker, False):
            self._grants.serve_wants(now, self._grants.wants.of(broker))

    # --- claims --------------------------------------------------------------------------------------------

    def _claimed(self, now: int, broker: str, claim: Claim) -> None:
        self._listen(now, broker)
        rounds = dict(claim.rounds)
        self._tenure.renew(broker, now, claim.echo, self._tenure.in_round(claim.rounds))
        if claim.settled:
            self._runs.settled(claim.settled)
        substituted: list[tuple[TaskId, int]] = []
        refused: list[Refused] = []
        fast = False
        for number in claim.releases:
            self._acceptance.release(broker, number)
        for lot in claim.lots:
            reason = self._tenure.barrier(now, broker, lot.brief.estate, rounds)
            if reason is None and self._runs.kept() + len(lot.tasks) > self.config.runs_max:
                reason = Refusal.BUSY
            if reason is not None:
                self._mark(f"warden.refused_{reason}")
                refused += self._acceptance.refuse(lot, reason)
                self._acceptance.release(broker, lot.lease)
                continue
            fast = self._acceptance.place(now, broker, lot, substituted, refused) or fast
        if claim.demand is not None:
            self._demanded(now, broker, claim.demand)
        if fast or refused or substituted:
            answer = Answer(claim.number, tuple(substituted), tuple(refused), self._delta(broker))
            self._post.send(self._out, now, broker, answer)

    def _demanded(self, now: int, broker: str, lines: tuple[DemandLine, ...]) -> None:
        self._listen(now, broker)
        fresh = self._grants.wants.replace(broker, lines)
        if self._grants.freed:
            self._serve(now)  # what it gave back goes by the order of all, and not to itself first
        self._grants.serve_wants(now, fresh)

    # --- estates -------------------------------------------------------------------------------------------

    def _adopted(self, now: int, broker: str, adopt: Adopt) -> None:
        self._listen(now, broker)
        answer = self._tenure.adopt(broker, adopt)
        if answer.accepted:
            self._mark("warden.estate_adopted")
            running, ends = self._runs.running_of(adopt.estate), self._runs.unsettled_of(adopt.estate)
            answer = Estate(adopt.estate, answer.term, broker, True, adopt.bid, tuple(running), tuple(ends))
        self._post.send(self._out, now, broker, answer)

    def _lapse(self, now: int) -> None:
        """Estates whose lease has run out: end their movable attempts before anything else happens."""
        for estate in self._tenure.lapse(now):
            self._runs.lapse(estate)

    # --- time and telling ----------------------------------------------------------------------------------

    def _tick(self, now: int) -> None:
        if self._ledger.leases:
            self._acceptance.expire(now)
        if now >= self._roster.forget_at:
            self._roster.forget_now()
        if now >= self._roster.due:
            for record in self._roster.overdue(now):
                self._runs.lose(record)
        if now >= self.drains.due:
            self._grants.freed += self.drains.end(now)
            self._beat_at = now
        if now >= self._beat_at:
            self._beat(now)
        if now >= self._runs.news_at:
            self._runs.tell_starts()
        if now >= self._delta_at:
            self._delta_at = NEVER
            self._tell_changes()
        if now >= self._post.due:
            self._post.tick(self._out, now)

    def _beat(self, now: int) -> None:
        self._beat_at = now + self._timings.beat
        before = now - self._timings.suspect_after
        rounds = self._tenure.all_rounds(self.config.serving, now)
        for broker in self.config.serving:
            if self._heard[broker] < before and broker not in self._grants.silent:
                self._mark("warden.broker_silent")
                self._grants.silent[broker] = True
                self._grants.review(now)
            self._beat_to(now, broker, rounds[broker])

    def _beat_to(self, now: int, broker: str, rounds: Rounds) -> None:
        """Show one broker that we live, and ask it to renew the leases of its estates."""
        ledger = self._ledger
        beat = Beat(ledger.cluster, self._epoch, now, ledger.version, rounds, self.drains.told)
        self._post.soft(self._out, broker, beat)

    def _tell_changes(self) -> None:
        """Tell every broker what has changed since it was last told; most were told at the same time."""
        version = self._ledger.version
        changes: dict[int, Change] = {}
        for broker in self.config.serving:
            since = self._told.get(broker, 0)
            if 0 < since < version:
                change = changes.get(since)
                if change is None:
                    change = changes[since] = Change(self._ledger.delta(self._epoch, since))
                self._told[broker] = version
                self._post.soft(self._out, broker, change)

    def _delta(self, broker: str) -> Delta | None:
        self._ledger.publish()
        since = self._told.get(broker, 0)
        if since >= self._ledger.version or since == 0:
            return None
        self._told[broker] = self._ledger.version
        return self._ledger.delta(self._epoch, since)

    def _snapshot(self, broker: str) -> None:
        ledger = self._ledger
        ledger.publish()
        self._told[broker] = ledger.version
        offered = tuple(self.offered())
        snapshot = Snapshot(
            ledger.cluster, self._epoch, ledger.version, ledger.dimensions, *self._layout, offered
        )
        self._post.soft(self._out, broker, snapshot)

    def _serve(self, now: int) -> None:
        """Offer what came free; then see who waited for other jobs to come or go."""
        grants = self._grants
        while grants.freed:
            nodes, grants.freed = grants.freed, []
            for node in dict.fromkeys(nodes):
                grants.serve_node(now, node)
        if self._ledger.social:
            grants.serve_social(now)

    def _flush(self, now: int) -> None:
        """Say everything that this step made worth saying."""
        grants = self._grants
        self._runs.preempt()
        if self._roster.batches:
            self._roster.send_orders(self._post, self._out, now)
        if grants.offers or self._runs.ended:
            self._runs.tell(self._post, self._out, now)

    def _look(self, now: int) -> None:
        """The room on offer may have changed: see whether some broker has not been told."""
        self._ledger.publish()
        version = self._ledger.version
        if self._seen == version or self._delta_at < NEVER:
            return
        self._seen = version
        for told in self._told.values():
            if 0 < told < version:
                self._delta_at = now + self._timings.delta_linger
                return

    def _arm(self, now: int) -> None:
        """Ask for a tick when something is next due, unless an earlier one will come anyway."""
        roster, leases = self._roster, self._ledger.leases
        due = self._post.due
        if self._beat_at < due:
            due = self._beat_at
        if self._delta_at < due:
            due = self._delta_at
        if self.drains.due < due:
            due = self.drains.due
        if self._runs.news_at < due:
            due = self._runs.news_at
        if roster.forget_at < due:
            due = roster.forget_at
        if leases:
            until = next(iter(leases.values())).until  # the oldest comes first
            if until < due:
                due = until
        self._unleased = due
        if roster.due < due:
            due = roster.due
        if self._tenure.due < due:
            due = self._tenure.due
        self._due = due
        if due < self._armed or now >= self._armed:
            self._armed = due
            self._out.append(WakeAt(due))

    def _start(self) -> int:
        return mix(self._seed, self._steps)

    def _mark(self, name: str) -> None:
        self.marks[name] = self.marks.get(name, 0) + 1

    # --- for the shell -------------------------------------------------------------------------------------

    def offered(self) -> list[Vector]:
        """Room on offer, node by node, as a broker's view should show it."""
        return self._ledger.offered_all(range(self._ledger.nodes))

    @property
    def epoch(self) -> int:
        """How often it has been started."""
        return self._epoch

    def states(self) -> list[tuple[bool, bool, Vector]]:
        """Of each node: whether it is up, whether it drains, and the room on offer."""
        return self._ledger.states()

    def held(self) -> list[Resources]:
        """Of each node: what attempts and grants hold of it."""
        return self._ledger.in_use()

    @property
    def attempts(self) -> int:
        """Attempts that are ordered or run."""
        return len(self._ledger.runs)

    def idle(self) -> list[str]:
        """What is not as it should be when no work is left."""
        return self._runs.idle() + self._post.idle()

    def estates(self) -> dict[str, int]:
        """The estates that it knows, and the latest term of each."""
        return {name: record.term for name, record in self._tenure.estates.items()}

    def check(self) -> None:
        """Invariants across the parts."""
        self._ledger.check()
        self._grants.check()
        self.drains.check()
        self._post.check()
        self._tenure.check()
        assert len(self._ledger.runs) <= self.config.runs_max

    def dump(self) -> bytes:
        """The whole state."""
        ledger = self._ledger
        state = WardenState(
            epoch=self._epoch,
            seed=self._seed,
            steps=self._steps,
            armed=self._armed,
            due=self._due,
            seen=self._seen,
            post_due=self._post.due,
            beat_at=self._beat_at,
            delta_at=self._delta_at,
            news_at=self._runs.news_at,
            version=ledger.version,
            next_lease=ledger.next_lease,
            runs=ledger.runs,  # type: ignore[arg-type]  # a task id is a number
            leases=ledger.leases,
            changed=ledger.changed,
            up=mask_indices(ledger.up, ledger.nodes),
            draining=mask_indices(ledger.draining, ledger.nodes),
            withheld=ledger.withheld,
            hold=self._grants.hold,
            preempt_at=self._grants.preempt_at,
            wants=self._grants.wants.order,
            silent=self._grants.silent,
            told=self._told,
            heard=self._heard,
            started=self._runs.started,
            unsettled=self._runs.unsettled,
            ended=self._runs.ended,
            runners=self._roster.runners,
            forget_at=self._roster.forget_at,
            estates=self._tenure.estates,
            links=self._post.links,
            closed=self._tenure.closed,
            drains=self.drains.kept,
        )
        return encode_state(state)

    def restore(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        saved = decode_state(state)
        ledger = self._ledger
        self._epoch, self._seed, self._steps = saved.epoch, saved.seed, saved.steps
        self._beat_at, self._delta_at, self._runs.news_at = saved.beat_at, saved.delta_at, saved.news_at
        ledger.restore(saved.runs, saved.leases, saved.up, saved.draining, saved.withheld)  # type: ignore[arg-type]
        self.drains.restore(saved.drains)
        ledger.next_lease = saved.next_lease
        self._grants.hold, self._grants.preempt_at = saved.hold, saved.preempt_at
        ledger.resume(saved.version, saved.changed, saved.hold.nodes if saved.hold else ())
        self._grants.wants.restore(saved.wants)
        self._grants.silent, self._told, self._heard = saved.silent, saved.told, saved.heard
        self._runs.started, self._runs.unsettled = saved.started, saved.unsettled
        self._runs.ended = saved.ended
        self._roster.restore(saved.runners, saved.forget_at)
        self._tenure.restore(saved.estates, saved.closed)
        self._post.restore(saved.links, saved.post_due)
        self._armed, self._due, self._seen = saved.armed, saved.due, saved.seen
        self._unleased = -1
