"""The broker: takes jobs, believes something about every cluster, and proposes; wardens decide.

One class takes the events. Its parts: the queue (``core.broker.queue``), the views
(``core.broker.cluster_view``), placing (``core.broker.placement``), the jobs' careers
(``core.broker.job_lifecycle``), estates and adoption (``core.broker.failover.replication``) and membership
(``core.broker.membership``); they share a ``Desk``.
"""

# ruff: noqa: PLR1730, FURB136  with every event: a call of min() costs more than all it compares

from collections.abc import Callable, Collection
from typing import Any

from hanse.core.broker.admission import Admission
from hanse.core.broker.cluster_eligibility import Clusters
from hanse.core.broker.cluster_view import WARY_TIME, ClusterView, Sight
from hanse.core.broker.context import Desk
from hanse.core.broker.failover.redirects import find_speaker
from hanse.core.broker.failover.replication import Estates
from hanse.core.broker.failover.standby import Wards, renew
from hanse.core.broker.job_lifecycle import Careers
from hanse.core.broker.job_table import CANCELLED, CLAIMED, FAILED, PLACED, SUCCEEDED
from hanse.core.broker.placement import Placing
from hanse.core.broker.state import BrokerState, decode_state, encode_state
from hanse.core.config import BrokerConfig
from hanse.core.messaging.link import NEVER
from hanse.core.warden.runner_sessions import lease_span
from hanse.model.duration_stats import Experience
from hanse.model.effects import Command, WakeAt
from hanse.model.events import Advised, Booted, CancelRequested, Event, Received, Submitted, Tick
from hanse.model.ids import JobId, TaskId, index_of, job_of, job_text
from hanse.model.messages import (
    Answer,
    Beat,
    BeatReply,
    Change,
    Delta,
    Estate,
    Gossip,
    News,
    Progress,
    Refusal,
    Refused,
    Replicate,
    Snapshot,
    Sync,
    Taken,
    Watch,
    Watched,
)
from hanse.model.resources import Vector
from hanse.policy.interface import ClusterRank, Placer, QueueOrder, Sizer


class Broker:
    """One broker. ``handle`` takes events in order; see ``core.machine``."""

    def __init__(
        self, config: BrokerConfig, order: QueueOrder, placer: Placer, rank: ClusterRank, sizer: Sizer
    ) -> None:
        self.config = config
        self.name = config.name
        self._desk = Desk(config, order, placer, rank, sizer)
        self.marks, self.post = self._desk.marks, self._desk.post
        self._placing = Placing(self._desk)
        self._careers = Careers(self._desk, self._placing)
        self._withdrawing = self._careers.withdrawing
        self._estates = Estates(self._desk, self._careers)
        self._wards = Wards(self._desk, self._estates.adopt)
        self._admission = Admission(self._desk, self._careers, self._estates)
        timings, grace = config.timings, config.timings.lease_grace
        self._patience = lease_span(timings.cluster_lease, grace) + lease_span(timings.runner_lease, grace)
        """After this long without a beat from a cluster all its movable attempts have ended."""
        self._advice = self._placing.sizing.advice
        self._clusters = Clusters(self._desk, self._careers)
        self.epoch = 0
        """How often it has been started; for reading only."""
        self._beat_at, self._force = NEVER, False
        self._armed, self._due = NEVER, 0
        self._handlers = self._handlers_by_type()

    # --- events --------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Take one event; return what the shell must do, in order."""
        desk = self._desk
        out: list[Command] = []
        desk.out = out
        desk.now = now = event.at
        desk.steps += 1
        calm = True
        if type(event) is Received:
            envelope = event.envelope
            for body in desk.post.receive(now, envelope):
                handler = self._handlers.get(type(body))
                if handler is not None:  # else a bare acknowledgement
                    handler(envelope.source, body)
            calm = envelope.seq <= 0
        elif type(event) is not Tick:
            self._asked(event)
            calm = False
        if now >= self._due:
            self._tick(now)
            calm = False
        placing, estates = self._placing, self._estates
        if estates.busy or placing.touched or self._withdrawing.cancels or self._advice.ready or self._force:
            self._conclude()
        elif calm and now < self._armed:
            return out  # an early tick, or a soft message that set nothing off: the same is due as before
        self._arm(now)
        return out

    def _conclude(self) -> None:
        """Say everything that this step made worth saying."""
        if self._estates.busy:
            self._estates.release()  # what is admitted now is claimed now
        if self._placing.touched or self._force:  # whatever is claimed or released touches its line
            self._placing.flush(self._force)
            self._force = False
        if self._withdrawing.cancels:
            self._withdrawing.flush()
        if self._advice.ready:
            self._placing.sizing.ask()

    def _asked(self, event: Event) -> None:
        if isinstance(event, Submitted):
            self._admission.submit(event)
        elif isinstance(event, CancelRequested):
            self._admission.cancel(event)
        elif isinstance(event, Booted):
            self._boot(event)
        elif isinstance(event, Advised):
            self._placing.advised(event)

    def _boot(self, event: Booted) -> None:
        desk = self._desk
        self.epoch, desk.seed = event.epoch, event.seed
        self._armed, self._due = NEVER, 0
        if event.epoch > 1:
            desk.mark("broker.restarted")
        desk.members.boot(event.at, event.epoch)
        desk.post.boot(event.at)
        for view in desk.views:
            view.sight.renewed_at = event.at  # a restarting grantor adds a whole lease
            view.sight.given_up = False
            if view.is_open:
                desk.post.soft(desk.out, view.name, Sync(view.cluster))
        self._estates.boot()
        self._placing.sizing.advice.boot()
        self._beat_at = event.at
        self._force = True

    def _handlers_by_type(self) -> dict[type, Callable[[str, Any], None]]:
        return {
            News: self._news,
            Answer: self._answered,
            Beat: self._beaten,
            Change: self._changed,
            Snapshot: self._snapshot,
            Estate: self._estate,
            Gossip: self._gossip,
            Replicate: self._replicated,
            Progress: self._wards.progress,
            Taken: self._taken,
            Watch: self._watch,
            Watched: self._careers.watched,
            **self._estates.closing.handlers(self._wards),
            **self._estates.seeking.handlers(self._wards),
            Experience: self._placing.heard,
        }

    def _gossip(self, _: str, gossip: Gossip) -> None:
        self._desk.members.learn(self._desk.now, gossip)
        if self._clusters.waiting:
            self._clusters.open()

    def _watch(self, source: str, body: Watch) -> None:
        self._careers.watch(source, body, self._elsewhere)

    def _changed(self, source: str, body: Change) -> None:
        self._delta(self._desk.view_of[source], body.delta)

    def _snapshot(self, source: str, snapshot: Snapshot) -> None:
        view = self._desk.view_of[source]
        if view.is_open:
            view.sight.seen_at = self._desk.now
            view.snapshot(snapshot)
            self._placing.place_all()

    def _estate(self, source: str, body: Estate) -> None:
        (self._wards if body.bid else self._estates).answered(source, body)

    def _replicated(self, source: str, body: Replicate) -> None:
        if body.estate not in self._estates.state.owned:  # else adopted: the former owner will hear of it
            self._wards.keep(source, body)

    def _elsewhere(self, job: JobId) -> bool:
        """Whether others must speak for a job: it is kept here for a peer, or a peer has taken it."""
        return job in self._estates.state.given_jobs or self._wards.knows(job)

    def _taken(self, source: str, body: Taken) -> None:
        self._estates.taken(source, body)
        self._force = True

    # --- wardens -------------------------------------------------------------------------------------------

    def _answered(self, source: str, answer: Answer) -> None:
        desk = self._desk
        view = desk.view_of[source]
        lots = view.answered(answer.number)
        if answer.delta is not None:
            self._delta(view, answer.delta, place=False)
        for lot in lots:
            record = desk.jobs.get(lot.job)
            if record is None:
                continue
            state, attempts = record.state, record.attempt
            for index, attempt in zip(lot.tasks, lot.attempts, strict=True):
                if state[index] == CLAIMED and attempts[index] == attempt:
                    state[index] = PLACED
            self._placing.expect(view.index, lot)
        if answer.refused:
            self._refused(view, answer.refused)
        elif self._placing.spare:
            self._placing.use_spare(view.index)

    def _refused(self, view: ClusterView, refused: tuple[Refused, ...]) -> None:
        """What was not taken waits again; room that was granted meanwhile is used first. The rest is asked
        for: who claims again at such a moment is refused again."""
        desk = self._desk
        view.sight.wary_until = desk.now + WARY_TIME
        for entry in refused:
            if entry.reason in (Refusal.STALE_ROUND, Refusal.FENCED):
                view.sight.closed_until = desk.now + desk.timings.beat
            desk.mark(f"broker.refused_{entry.reason}")
            self._careers.refused(entry.task, entry.attempt, entry.reason)
        self._placing.use_spare(view.index)
        for number in {self._line_of(entry.task): None for entry in refused}:
            if number >= 0:
                for each in desk.views:
                    each.sight.exhausted[number] = True
                self._placing.place_line(number)  # which says that it waits

    def _line_of(self, task: TaskId) -> int:
        """The line of a task's group, or -1."""
        record = self._desk.jobs.get(job_of(task))
        return -1 if record is None else record.lines[record.group_of(index_of(task))]

    def _news(self, source: str, news: News) -> None:
        if news.started:
            self._careers.started(news.started)
        if news.ended:
            self._estates.finish(source, self._wards.keep_ends(source, news.ended))
        if news.offers:  # after the ends: what waits may stand in another order now
            self._placing.offered(self._desk.view_of[source].index, news.offers)

    def _delta(self, view: ClusterView, delta: Delta, place: bool = True) -> None:
        desk = self._desk
        view.sight.seen_at = desk.now
        if not view.delta(delta):
            desk.mark("broker.view_gap")
            desk.post.soft(desk.out, view.name, Sync(view.cluster))
        elif place and not view.sight.exhausted:
            self._placing.place_all()

    def _beaten(self, source: str, beat: Beat) -> None:
        desk = self._desk
        view = desk.view_of[source]
        sight = view.sight
        reopened = sight.given_up
        if beat.sent_at > sight.echo:
            sight.echo = beat.sent_at
        elif not reopened:
            return  # an old one, overtaken
        sight.renewed_at, sight.drains = desk.now, beat.drains
        if reopened:
            sight.given_up = False
        for estate, number in beat.rounds:
            if number > sight.rounds.get(estate, 0):
                sight.rounds[estate] = number
                reopened = self._estates.closing.grown = True
        renewed = view.renewable(self._estates.names, beat.rounds)
        desk.post.soft(desk.out, source, BeatReply(beat.sent_at, renewed))
        gap = sight.snapshot is None or beat.epoch != sight.snapshot.epoch
        late = gap or (beat.version > sight.version and desk.now - sight.seen_at > desk.timings.beat)
        if (view.is_rewound(beat.epoch, beat.version) or late) and view.is_open:
            desk.post.soft(desk.out, source, Sync(view.cluster))
        if reopened:
            sight.exhausted.clear()
            self._placing.place_all()

    # --- time ----------------------------------------------------------------------------------------------

    def _tick(self, now: int) -> None:
        desk = self._desk
        placing, careers = self._placing, self._careers
        if now >= self._beat_at:
            self._beat(now)
        expected, deadlines = placing.expected, careers.deadlines
        if (expected and now >= expected[0].due) or (deadlines and now >= deadlines[0][0]):
            careers.tick()
        if now >= careers.ending.due:
            careers.ending.step(now)
        if placing.offers and now >= placing.offers[0][2]:
            placing.bind_offers()
        if placing.spare and now >= placing.spare[0][2]:
            placing.use_spare()
        if now >= self._estates.state.progress_at:
            self._estates.tick()
        if now >= desk.settling.state.due:
            desk.settling.tick(desk.out, now)
        if now >= desk.post.due:
            desk.post.tick(desk.out, now)

    def _beat(self, now: int) -> None:
        desk = self._desk
        self._beat_at = now + desk.timings.beat
        peers, gossip = desk.members.round(desk.seed)
        for peer in peers:
            desk.post.soft(desk.out, peer, gossip)
        desk.members.suspects(now)
        self._placing.sizing.share()
        self._estates.review()
        self._wards.review()
        before = now - self._patience
        for view in desk.views:
            sight = view.sight
            if sight.renewed_at < before and not sight.given_up:
                self._estates.closing.grown = True
                self._clusters.give_up(view)
        if self._careers.unknown:
            self._careers.ask_again()
        sizing = self._placing.sizing
        if sizing.waiting:
            self._placing.resize(sizing.patient())
        sizing.advice.beat(bool(sizing.waiting))
        if desk.lines.any_waiting():
            self._placing.place_all()
            self._placing.demands.remind()
        elif self._placing.demands.outdated:
            self._placing.demands.remind()

    def _arm(self, now: int) -> None:
        """Ask for a tick when something is next due, unless an earlier one will come anyway."""
        desk, placing, deadlines = self._desk, self._placing, self._careers.deadlines
        due = self._beat_at if self._beat_at < desk.post.due else desk.post.due
        if self._estates.state.progress_at < due:
            due = self._estates.state.progress_at
        if placing.expected and placing.expected[0].due < due:
            due = placing.expected[0].due
        if desk.settling.state.due < due:
            due = desk.settling.state.due
        if self._careers.ending.due < due:
            due = self._careers.ending.due
        if deadlines and deadlines[0][0] < due:
            due = deadlines[0][0]
        if placing.offers and placing.offers[0][2] < due:
            due = placing.offers[0][2]
        if placing.spare and placing.spare[0][2] < due:
            due = placing.spare[0][2]
        self._due = due
        if due < self._armed or now >= self._armed:
            self._armed = due
            desk.out.append(WakeAt(due))

    # --- for the shell -------------------------------------------------------------------------------------

    def view_of(self, cluster: str) -> list[Vector] | None:
        """What this broker believes to be free in a cluster, node by node."""
        return self._desk.view_of[cluster].confirmed()

    def sight_of(self, cluster: str) -> Sight:
        """All that this broker believes about a cluster; for reading only."""
        return self._desk.view_of[cluster].sight

    def tasks_of(self, job: JobId) -> int | None:
        """How many tasks a job has, if it is ours or kept for a peer."""
        record = self._desk.jobs.get(job)
        return len(record.state) if record is not None else self._wards.tasks_of(job)

    def owns(self, job: JobId) -> bool:
        """Whether a job is ours and has not ended."""
        return job in self._desk.jobs

    def speaker_of(self, job: JobId, asked: Collection[str] = ()) -> str:
        """Who speaks for a job, whoever ``asked`` was asked before; see ``redirects``."""
        state = self._estates.state
        return find_speaker(job, asked, self._desk, self._careers, state, self._wards)

    def is_alone(self) -> bool:
        """Whether it has no heir for some of its jobs, because no peer can be reached."""
        return any(not one.heir for one in self._estates.state.owned.values())

    def unguarded(self) -> int:
        """How many jobs and messages would be lost with this broker."""
        return self._estates.closing.unguarded()

    def alive(self, broker: str) -> bool:
        """Whether a peer is not suspected of being dead."""
        return self._desk.members.alive(broker)

    def estates(self) -> tuple[list[str], list[str]]:
        """The estates that it owns, and those of which it keeps copies."""
        return list(self._estates.state.owned), list(self._wards.wards)

    def idle(self) -> list[str]:
        """What is not as it should be when no work is left."""
        desk = self._desk
        complaints = [f"job {job_text(job)} has not ended" for job in desk.jobs]
        complaints += desk.lines.idle()
        for view in desk.views:
            complaints += view.idle()
        complaints += desk.post.idle() + self._estates.idle()
        complaints += [f"adoption of {e} is under way" for e, w in self._wards.wards.items() if w.adopting]
        return complaints

    def check(self) -> None:
        """Invariants across the parts."""
        desk = self._desk
        desk.post.check()
        self._clusters.check()
        desk.members.check()
        self._estates.check()
        self._placing.demands.check()
        self._placing.sizing.check()
        assert len(desk.jobs) <= self.config.jobs_max
        self._careers.check()
        for record in desk.jobs.values():
            over = sum(map(record.state.count, (SUCCEEDED, FAILED, CANCELLED)))
            assert record.left == len(record.state) - over == sum(record.unfinished)
        for view in desk.views:
            view.check()
        desk.lines.check_counts(desk.jobs)

    def dump(self) -> bytes:
        """The whole state."""
        desk, placing, careers = self._desk, self._placing, self._careers
        state = BrokerState(
            epoch=self.epoch,
            seed=desk.seed,
            steps=desk.steps,
            armed=self._armed,
            due=self._due,
            post_due=desk.post.due,
            serial=self._admission.serial,
            beat_at=self._beat_at,
            beat=desk.members.beat,
            heard=desk.members.heard,
            jobs=desk.jobs,  # type: ignore[arg-type]  # a job id is a number
            lines=desk.lines.lines,
            free_lines=desk.lines.free,
            sights=[view.sight for view in desk.views],
            registered=placing.demands.registered,
            best=placing.demands.best,
            offers=placing.offers,
            spare=placing.spare,
            expected=placing.expected,
            hold_at=placing.demands.hold_at,
            ended=careers.ended,  # type: ignore[arg-type]
            clients=careers.clients,  # type: ignore[arg-type]
            watchers=careers.watchers,  # type: ignore[arg-type]
            unknown=careers.unknown,  # type: ignore[arg-type]
            round=careers.round,
            deadlines=careers.deadlines,  # type: ignore[arg-type]
            tasks=careers.tasks,
            estates=self._estates.state,
            wards=self._wards.wards,
            bids=self._wards.bids,
            settling=desk.settling.state,
            sizing=placing.sizing.dump(),
            links=desk.post.links,
            slice_at=careers.ending.due,
        )
        return encode_state(state)

    def restore(self, state: bytes) -> None:
        """Replace the state by a dumped one."""
        saved = decode_state(state)
        desk, placing, careers = self._desk, self._placing, self._careers
        self.epoch, self._admission.serial, self._beat_at = saved.epoch, saved.serial, saved.beat_at
        desk.seed, desk.steps = saved.seed, saved.steps
        desk.members.restore(saved.epoch, saved.beat, saved.heard)
        self._clusters.review()
        desk.jobs = saved.jobs  # type: ignore[assignment]
        desk.lines.restore(saved.lines, saved.free_lines, desk.jobs)
        for view, sight in zip(desk.views, saved.sights, strict=False):  # clusters may have joined
            view.restore(sight)
        placing.restore(saved.offers, saved.spare, saved.expected)
        placing.sizing.restore(saved.sizing, desk.jobs)
        placing.demands.restore(saved.registered, saved.best, saved.hold_at)
        careers.ended, careers.clients = saved.ended, saved.clients  # type: ignore[assignment]
        careers.watchers, careers.unknown = saved.watchers, saved.unknown  # type: ignore[assignment]
        careers.round, careers.tasks = saved.round, saved.tasks
        careers.deadlines = saved.deadlines  # type: ignore[assignment]
        careers.ending.restore(desk.jobs, saved.slice_at)
        careers.awaited = {job: None for record in desk.jobs.values() for job in record.after}
        self._estates.restore(saved.estates)
        self._wards.wards, self._wards.bids = renew(saved.wards), saved.bids
        desk.settling.state = saved.settling
        desk.post.restore(saved.links, saved.post_due)
        self._armed, self._due = saved.armed, saved.due
