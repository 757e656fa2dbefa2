"""Attempts of a warden from order to end: reports of its runners, and reports to the owners.

An end is kept until the owner has it safe (``AckEnds``), so that no crash loses it. A runner that opens a
session is compared with the ledger; a lost runner loses all its attempts.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from hanse.core.messaging.link import NEVER, LinkSet
from hanse.core.warden.grants import Grants
from hanse.core.warden.ledger import Ledger
from hanse.core.warden.ledger_records import ORDERED, RUNNING, STOPPING, AttemptRecord
from hanse.core.warden.ownership import Ownership
from hanse.core.warden.runner_sessions import RunnerRecord, RunnerSessions
from hanse.core.warden.unacked_ends import UnackedEnds
from hanse.model.effects import Effect
from hanse.model.ids import TaskId
from hanse.model.job import UnreachablePolicy
from hanse.model.messages import (
    AttemptEnd,
    CancelAttempts,
    OpenSession,
    Outcome,
    RunnerReport,
    ShardId,
    StopTask,
    TaskUpdates,
    WithheldCapacity,
)
from hanse.model.resources import Resources

ENDS_PER_MESSAGE_MAX: Final = 2_000
"""Ends in one message to their owner."""
OUTCOME_BY_STOP_REASON: Final = {
    "cancel": Outcome.CANCELLED,
    "preempt": Outcome.PREEMPTED,
    "lapse": Outcome.LOST,
}
"""Outcome of an attempt that was stopped for this reason."""

ATTEMPT_TRANSITIONS: Final = {
    (ORDERED, RUNNING): "the runner reports that it started",
    (ORDERED, STOPPING): "it is cancelled or preempted, or its owner's lease has lapsed",
    (RUNNING, STOPPING): "it is cancelled or preempted, or its owner's lease has lapsed",
}
"""All changes of the state of an attempt that holds room. From each of these states an attempt may end."""


class WardenAttempts:
    """Attempts of one warden."""

    def __init__(
        self,
        ledger: Ledger,
        grants: Grants,
        sessions: RunnerSessions,
        ownership: Ownership,
        unacked_ends: UnackedEnds,
        linger: int,
        mark: Callable[[str], None],
    ) -> None:
        self.ledger, self.grants, self.sessions, self.ownership = ledger, grants, sessions, ownership
        self.unacked_ends = unacked_ends
        self.linger = linger
        """Time for which starts wait to be reported together."""
        self.starts_due = NEVER
        self.pending_starts: dict[str, list[tuple[TaskId, int, int]]] = {}
        """Starts to be reported, by owner."""
        self.pending_ends: dict[str, list[AttemptEnd]] = {}
        """Ends to be reported at the end of this step, by owner."""
        self._mark = mark

    def find_running_attempts(self, shard: ShardId) -> list[tuple[TaskId, int]]:
        """Return a shard's attempts that run here."""
        runs = self.ledger.attempts.values()
        return [(run.task, run.attempt) for run in runs if run.template.shard == shard]

    def is_busy(self, shard: ShardId) -> bool:
        """True if an attempt of a shard runs here, or has ended and is not safe with its owner."""
        running = any(run.template.shard == shard for run in self.ledger.attempts.values())
        return running or self.unacked_ends.has_shard(shard)

    def find_leftovers(self) -> list[str]:
        """List what should not exist when no work is left."""
        ledger = self.ledger
        complaints = [
            f"lease {lease.number} of {lease.broker} is outstanding" for lease in ledger.leases.values()
        ]
        complaints += [
            f"task {run.task} still holds room on node {run.node}" for run in ledger.attempts.values()
        ]
        complaints += [f"task {task} has an unsettled end" for task, _ in self.unacked_ends.by_attempt]
        complaints += [f"node {node} is held" for node in ledger.held]
        complaints += [f"room on node {node} is withheld" for node in ledger.withheld]
        for node, capacity in enumerate(ledger.capacity):
            if ledger.room.free_of(node) != capacity:
                complaints.append(f"node {node} has {ledger.room.free_of(node)} free of {capacity}")
        return complaints

    def repeat_ends(self, shard: ShardId) -> None:
        """Report ends again to the former owner of a shard, which missed them during a takeover attempt."""
        ends = self.unacked_ends.find(shard)
        if ends:
            self._mark("warden.told_ends_again")
            self.pending_ends.setdefault(self.ownership.find_owner(shard), []).extend(ends)

    def stop(self, run: AttemptRecord, reason: str, grace: int) -> None:
        """Order the stop of an attempt, once."""
        if run.state != STOPPING:
            run.state, run.stop = STOPPING, reason
            self.sessions.orders_for(self.sessions.runner_of_node[run.node]).stops.append(
                StopTask(run.task, run.attempt, grace)
            )

    def stop_lapsed(self, shard: ShardId) -> None:
        """Stop the movable attempts of a shard after its lease has expired."""
        for run in self.ledger.attempts.values():
            if run.template.shard == shard and run.template.unreachable is UnreachablePolicy.MOVE:
                self._mark("warden.lapsed_run")
                self.stop(run, "lapse", 0)

    def stop_victims(self) -> None:
        """Stop the victims of preemption in this step."""
        for run in self.grants.victims:
            self.stop(run, "preempt", run.template.grace)
        self.grants.victims.clear()

    def on_cancel_attempts(self, _now: int, _broker: str, cancel: CancelAttempts) -> None:
        """Stop attempts that a broker withdraws."""
        for task, attempt in zip(cancel.tasks, cancel.attempts, strict=True):
            run = self.ledger.attempts.get(task)
            if run is not None and run.attempt == attempt:
                self.stop(run, "cancel", run.template.grace)

    def on_runner_report(self, now: int, runner: str, report: RunnerReport) -> None:
        """Handle a runner's report of starts and ends."""
        runs = self.ledger.attempts
        for task, attempt in report.started:
            run = runs.get(task)
            if run is not None and run.attempt == attempt and run.state == ORDERED:
                self._on_started(now, run)
        if report.ended:
            self._on_ended(now, runner, report.ended)
        if report.withheld:
            self._withhold(runner, report.withheld)

    def _withhold(self, runner: str, withheld: Iterable[WithheldCapacity]) -> None:
        for node, amount in withheld:
            if self.sessions.runner_of_node[node] == runner:
                self._mark("warden.room_withheld")
                self.ledger.withhold(node, amount)
                self.grants.freed_nodes.append(node)

    def _on_started(self, now: int, run: AttemptRecord) -> None:
        run.state, run.since = RUNNING, now
        owner = self.ownership.find_owner(run.template.shard)
        started = self.pending_starts.get(owner)
        if started is None:
            started = self.pending_starts[owner] = []
        started.append((run.task, run.attempt, run.node))
        if now + self.linger < self.starts_due:  # noqa: PLR1730  hot: min() is slower
            self.starts_due = now + self.linger

    def _on_ended(self, now: int, runner: str, ends: tuple[AttemptEnd, ...]) -> None:
        """Handle attempts that have ended on a runner."""
        sessions, runs = self.sessions, self.ledger.attempts
        record = sessions.runners[runner]
        sessions.forget_later(now, record, [(end.task, end.attempt) for end in ends])
        finished: list[tuple[AttemptRecord, AttemptEnd]] = []
        for end in ends:
            task = end.task
            if record.strays and sessions.remove_stray(runner, task, end.attempt):
                self._record_ends(finished)
                finished = []
                self.open_nodes(record)
            run = runs.get(task)
            if run is None or run.attempt != end.attempt or sessions.runner_of_node[run.node] != runner:
                self._mark("warden.end_of_unknown_attempt")
                continue
            del runs[task]
            outcome = end.outcome
            if outcome is Outcome.SUCCEEDED or outcome is Outcome.FAILED:
                finished.append((run, end))
            else:
                self._record_ends(finished)
                finished = [(run, self._stop_outcome(runner, run, end))]
        self._record_ends(finished)

    def _stop_outcome(self, runner: str, run: AttemptRecord, end: AttemptEnd) -> AttemptEnd:
        """Replace the outcome of an attempt that was stopped or not started by its cause."""
        outcome = end.outcome
        if outcome is Outcome.CANCELLED:
            outcome = OUTCOME_BY_STOP_REASON.get(run.stop, Outcome.LOST)
        elif outcome is Outcome.UNSTARTED:
            self._mark("warden.runner_without_lease")
            record = self.sessions.runners[runner]
            record.is_unsure = True
            for node in record.nodes:
                self.ledger.set_node_up(node, False)
        return end if outcome is end.outcome else msgspec.structs.replace(end, outcome=outcome)

    def _end_attempt(self, run: AttemptRecord, outcome: Outcome, code: int) -> None:
        del self.ledger.attempts[run.task]
        self._record_ends([(run, AttemptEnd(run.task, run.attempt, outcome, code))])

    def _record_ends(self, finished: list[tuple[AttemptRecord, AttemptEnd]]) -> None:
        """Free the room of ended attempts, and keep their ends until the owner has them safe."""
        if not finished:
            return
        self.grants.freed_nodes += self.ledger.return_capacity([run for run, _ in finished])
        shard: ShardId | None = None
        ends: list[AttemptEnd] = []
        for run, end in finished:
            if run.template.shard != shard:
                shard = run.template.shard
                ends = self.pending_ends.setdefault(self.ownership.find_owner(shard), [])
            self.unacked_ends.add(shard, end)
            ends.append(end)

    def on_ends_acked(self, ends: Iterable[tuple[TaskId, int]]) -> None:
        """Forget ends that are safe with their broker."""
        full = self.grants.is_full()
        self.unacked_ends.forget(ends)
        if full and not self.grants.is_full():
            self.grants.freed_nodes += range(self.ledger.nodes)

    def send_updates(self, links: LinkSet, effects: list[Effect], now: int) -> None:
        """Send starts and ends to the owners, and offers to the brokers that get room."""
        offers = self.grants.offers
        for broker in list(self.pending_ends):
            if broker and links.is_crowded(broker):
                self._mark("warden.news_held_back")  # all is sent when it is back
                continue
            ended = self.pending_ends.pop(broker)
            if broker:
                while len(ended) > ENDS_PER_MESSAGE_MAX:
                    links.send(effects, now, broker, TaskUpdates((), tuple(ended[:ENDS_PER_MESSAGE_MAX])))
                    del ended[:ENDS_PER_MESSAGE_MAX]
                started = tuple(self.pending_starts.pop(broker, ()))
                links.send(
                    effects, now, broker, TaskUpdates(started, tuple(ended), tuple(offers.pop(broker, ())))
                )
        for broker, granted in offers.items():
            links.send(effects, now, broker, TaskUpdates((), (), tuple(granted)))
        offers.clear()

    def flush_starts(self) -> None:
        """Report the collected starts with this step."""
        self.starts_due = NEVER
        for broker in list(self.pending_starts):
            self.pending_ends.setdefault(broker, [])

    def on_open_session(self, links: LinkSet, now: int, runner: str, message: OpenSession) -> None:
        """Open a runner's session: compare what it has with the ledger."""
        record = self.sessions.runners.get(runner)
        if record is None or message.session <= record.session:
            return
        self.sessions.open_session(links, now, runner, message)
        reported = dict(message.running)
        ended = {(end.task, end.attempt) for end in message.ended}
        if message.ended:
            self._on_ended(now, runner, message.ended)
        for run in [
            run for run in self.ledger.attempts.values() if self.sessions.runner_of_node[run.node] == runner
        ]:
            if reported.get(run.task) == run.attempt:
                del reported[run.task]
                if run.state == ORDERED:
                    self._on_started(now, run)
                if run.state == STOPPING:
                    self.sessions.orders_for(runner).stops.append(StopTask(run.task, run.attempt, 0))
            elif (run.task, run.attempt) not in ended:
                self._lose_missing(run)
        free = [(node, Resources()) for node in record.nodes if node in self.ledger.withheld]
        self._withhold(runner, [*free, *message.withheld])
        for task, attempt in reported.items():
            self._mark("warden.stopped_stray")
            record.strays[task] = attempt
            self.sessions.orders_for(runner).stops.append(StopTask(task, attempt, 0))
        self.open_nodes(record)

    def _lose_missing(self, run: AttemptRecord) -> None:
        """Lose an attempt that its runner does not have. It may have started and vanished with its host, so
        it never runs again. Its result is unknown, also if a stop was ordered before."""
        self._mark("warden.run_vanished")
        self._end_attempt(run, Outcome.LOST, 0)

    def open_nodes(self, record: RunnerRecord) -> None:
        """Open a runner's nodes, if nothing prevents it."""
        if not record.is_lost and not record.is_unsure and not record.strays:
            for node in record.nodes:
                self.ledger.set_node_up(node, True)
                self.grants.freed_nodes.append(node)

    def lose_runner(self, record: RunnerRecord) -> None:
        """Close the nodes of a runner after its lease has expired, and lose its attempts."""
        self._mark("warden.lost_runner")
        record.is_lost = True
        record.strays.clear()
        for node in record.nodes:
            self.ledger.set_node_up(node, False)
        for run in [run for run in self.ledger.attempts.values() if run.node in record.nodes]:
            self._end_attempt(run, Outcome.LOST, 0)
