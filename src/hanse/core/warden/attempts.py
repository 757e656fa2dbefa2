"""A warden's attempts from order to end: what its runners report, and what the owners must be told.

An end is kept until the owner has it safe (``Settle``), so that nothing is lost whoever crashes in between.
A runner that opens a session is compared with the ledger; one that is lost loses all it ran.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from hanse.core.messaging.link import NEVER, Post
from hanse.core.warden.grants import Grants
from hanse.core.warden.ledger import ORDERED, RUNNING, STOPPING, Ledger, Run
from hanse.core.warden.ownership import Tenure
from hanse.core.warden.runner_sessions import Roster, RunnerRecord
from hanse.model.effects import Command
from hanse.model.ids import TaskId
from hanse.model.job import Unreachable
from hanse.model.messages import Cancel, End, EstateId, Hello, News, Outcome, Report, StopTask, Withheld
from hanse.model.resources import Resources

NEWS_MAX: Final = 2_000
"""Ends in one message to their owner."""
STOPPED: Final = {"cancel": Outcome.CANCELLED, "preempt": Outcome.PREEMPTED, "lapse": Outcome.LOST}
"""How an attempt ended that was stopped for this reason."""

ATTEMPT_TRANSITIONS: Final = {
    (ORDERED, RUNNING): "the runner reports that it started",
    (ORDERED, STOPPING): "it is cancelled or preempted, or its owner's lease has lapsed",
    (RUNNING, STOPPING): "it is cancelled or preempted, or its owner's lease has lapsed",
}
"""Every change of the state of an attempt that holds room. From each of these states an attempt may end."""


class Runs:
    """The running side of a warden."""

    def __init__(
        self,
        ledger: Ledger,
        grants: Grants,
        roster: Roster,
        tenure: Tenure,
        linger: int,
        mark: Callable[[str], None],
    ) -> None:
        self.ledger, self.grants, self.roster, self.tenure = ledger, grants, roster, tenure
        self.linger = linger
        """How long starts may wait for company before they are told."""
        self.news_at = NEVER
        self.started: dict[str, list[tuple[TaskId, int, int]]] = {}
        """Starts to be told, by owner."""
        self.ended: dict[str, list[End]] = {}
        """Ends to be told at the end of this step, by owner."""
        self.unsettled: dict[tuple[TaskId, int], tuple[EstateId, End]] = {}
        """Task and attempt -> estate and end, until the owner has it safe."""
        self._mark = mark
        grants.kept = self.kept

    def kept(self) -> int:
        """Attempts that run here, or have ended and are not safe with their owner."""
        return len(self.ledger.runs) + len(self.unsettled)

    def unsettled_of(self, estate: EstateId) -> list[End]:
        """An estate's ends that its owner does not have safe."""
        return [end for name, end in self.unsettled.values() if name == estate]

    def running_of(self, estate: EstateId) -> list[tuple[TaskId, int]]:
        """An estate's attempts that run here."""
        runs = self.ledger.runs.values()
        return [(run.task, run.attempt) for run in runs if run.brief.estate == estate]

    def busy(self, estate: EstateId) -> bool:
        """Whether anything of an estate runs here, or has ended and is not safe with its owner."""
        running = any(run.brief.estate == estate for run in self.ledger.runs.values())
        return running or any(name == estate for name, _ in self.unsettled.values())

    def idle(self) -> list[str]:
        """What is not as it should be when no work is left."""
        ledger = self.ledger
        complaints = [
            f"lease {lease.number} of {lease.broker} is outstanding" for lease in ledger.leases.values()
        ]
        complaints += [f"task {run.task} still holds room on node {run.node}" for run in ledger.runs.values()]
        complaints += [f"task {task} has an unsettled end" for task, _ in self.unsettled]
        complaints += [f"node {node} is held" for node in ledger.held]
        complaints += [f"room on node {node} is withheld" for node in ledger.withheld]
        for node, capacity in enumerate(ledger.capacity):
            if ledger.room.free_of(node) != capacity:
                complaints.append(f"node {node} has {ledger.room.free_of(node)} free of {capacity}")
        return complaints

    def tell_again(self, estate: EstateId) -> None:
        """An estate is back with its former owner, who missed what ended meanwhile."""
        ends = self.unsettled_of(estate)
        if ends:
            self._mark("warden.told_ends_again")
            self.ended.setdefault(self.tenure.owner(estate), []).extend(ends)

    def stop(self, run: Run, reason: str, grace: int) -> None:
        """Have an attempt stopped, once."""
        if run.state != STOPPING:
            run.state, run.stop = STOPPING, reason
            self.roster.orders(self.roster.of_node[run.node]).stops.append(
                StopTask(run.task, run.attempt, grace)
            )

    def lapse(self, estate: EstateId) -> None:
        """An estate's lease has run out: its movable attempts must end."""
        for run in self.ledger.runs.values():
            if run.brief.estate == estate and run.brief.unreachable is Unreachable.MOVE:
                self._mark("warden.lapsed_run")
                self.stop(run, "lapse", 0)

    def preempt(self) -> None:
        """Have the victims of this step stopped."""
        for run in self.grants.victims:
            self.stop(run, "preempt", run.brief.grace)
        self.grants.victims.clear()

    def cancel(self, _now: int, _broker: str, cancel: Cancel) -> None:
        """A broker takes attempts back."""
        for task, attempt in zip(cancel.tasks, cancel.attempts, strict=True):
            run = self.ledger.runs.get(task)
            if run is not None and run.attempt == attempt:
                self.stop(run, "cancel", run.brief.grace)

    def reported(self, now: int, runner: str, report: Report) -> None:
        """A runner says what has started and what has ended."""
        runs = self.ledger.runs
        for task, attempt in report.started:
            run = runs.get(task)
            if run is not None and run.attempt == attempt and run.state == ORDERED:
                self._began(now, run)
        if report.ended:
            self._over(now, runner, report.ended)
        if report.withheld:
            self._withhold(runner, report.withheld)

    def _withhold(self, runner: str, withheld: Iterable[Withheld]) -> None:
        for node, amount in withheld:
            if self.roster.of_node[node] == runner:
                self._mark("warden.room_withheld")
                self.ledger.withhold(node, amount)
                self.grants.freed.append(node)

    def _began(self, now: int, run: Run) -> None:
        run.state, run.since = RUNNING, now
        owner = self.tenure.owner(run.brief.estate)
        started = self.started.get(owner)
        if started is None:
            started = self.started[owner] = []
        started.append((run.task, run.attempt, run.node))
        if now + self.linger < self.news_at:  # noqa: PLR1730  hot: min() costs more
            self.news_at = now + self.linger

    def _over(self, now: int, runner: str, ends: tuple[End, ...]) -> None:
        """A runner says that attempts have ended."""
        roster, runs = self.roster, self.ledger.runs
        record = roster.runners[runner]
        roster.forget_later(now, record, [(end.task, end.attempt) for end in ends])
        over: list[tuple[Run, End]] = []
        for end in ends:
            task = end.task
            if record.strays and roster.gone(runner, task, end.attempt):
                self._record(over)
                over = []
                self.open_nodes(record)
            run = runs.get(task)
            if run is None or run.attempt != end.attempt or roster.of_node[run.node] != runner:
                self._mark("warden.end_of_unknown_attempt")
                continue
            del runs[task]
            outcome = end.outcome
            if outcome is Outcome.SUCCEEDED or outcome is Outcome.FAILED:
                over.append((run, end))
            else:
                self._record(over)
                over = [(run, self._stopped(runner, run, end))]
        self._record(over)

    def _stopped(self, runner: str, run: Run, end: End) -> End:
        """An attempt did not end by itself: say what stopped it."""
        outcome = end.outcome
        if outcome is Outcome.CANCELLED:
            outcome = STOPPED.get(run.stop, Outcome.LOST)
        elif outcome is Outcome.UNSTARTED:
            self._mark("warden.runner_without_lease")
            record = self.roster.runners[runner]
            record.unsure = True
            for node in record.nodes:
                self.ledger.set_up(node, False)
        return end if outcome is end.outcome else msgspec.structs.replace(end, outcome=outcome)

    def _end(self, run: Run, outcome: Outcome, code: int) -> None:
        del self.ledger.runs[run.task]
        self._record([(run, End(run.task, run.attempt, outcome, code))])

    def _record(self, over: list[tuple[Run, End]]) -> None:
        """Attempts are over: their room is free, and their ends are kept until the owner has them safe."""
        if not over:
            return
        self.grants.freed += self.ledger.give_back([run for run, _ in over])
        estate: EstateId | None = None
        told: list[End] = []
        for run, end in over:
            if run.brief.estate != estate:
                estate = run.brief.estate
                told = self.ended.setdefault(self.tenure.owner(estate), [])
            self.unsettled[end.task, end.attempt] = (estate, end)
            told.append(end)

    def settled(self, ends: Iterable[tuple[TaskId, int]]) -> None:
        """These ends are safe with their broker."""
        full = self.grants.full()
        forget = self.unsettled.pop
        for key in ends:
            forget(key, None)
        if full and not self.grants.full():
            self.grants.freed += range(self.ledger.nodes)

    def tell(self, post: Post, out: list[Command], now: int) -> None:
        """News for the owners of what started or ended, and for those who get room."""
        offers = self.grants.offers
        for broker in list(self.ended):
            if broker and post.crowded(broker):
                self._mark("warden.news_held_back")  # it has been away for long; all of it when it is back
                continue
            ended = self.ended.pop(broker)
            if broker:
                while len(ended) > NEWS_MAX:
                    post.send(out, now, broker, News((), tuple(ended[:NEWS_MAX])))
                    del ended[:NEWS_MAX]
                started = tuple(self.started.pop(broker, ()))
                post.send(out, now, broker, News(started, tuple(ended), tuple(offers.pop(broker, ()))))
        for broker, granted in offers.items():
            post.send(out, now, broker, News((), (), tuple(granted)))
        offers.clear()

    def tell_starts(self) -> None:
        """Starts have waited long enough: their owners are told with this step."""
        self.news_at = NEVER
        for broker in list(self.started):
            self.ended.setdefault(broker, [])

    def greeted(self, post: Post, now: int, runner: str, hello: Hello) -> None:
        """A runner opens a session: compare its notes with ours."""
        record = self.roster.runners.get(runner)
        if record is None or hello.session <= record.session:
            return
        self.roster.open(post, now, runner, hello)
        there = dict(hello.running)
        ended = {(end.task, end.attempt) for end in hello.ended}
        if hello.ended:
            self._over(now, runner, hello.ended)
        for run in [run for run in self.ledger.runs.values() if self.roster.of_node[run.node] == runner]:
            if there.get(run.task) == run.attempt:
                del there[run.task]
                if run.state == ORDERED:
                    self._began(now, run)
                if run.state == STOPPING:
                    self.roster.orders(runner).stops.append(StopTask(run.task, run.attempt, 0))
            elif (run.task, run.attempt) not in ended:
                self._missing(run)
        free = [(node, Resources()) for node in record.nodes if node in self.ledger.withheld]
        self._withhold(runner, [*free, *hello.withheld])
        for task, attempt in there.items():
            self._mark("warden.stopped_stray")
            record.strays[task] = attempt
            self.roster.orders(runner).stops.append(StopTask(task, attempt, 0))
        self.open_nodes(record)

    def _missing(self, run: Run) -> None:
        """A run that its runner does not have. It may have started and gone with its host, so it never runs
        again. Whatever it was told to do before, nobody knows how it ended."""
        self._mark("warden.run_vanished")
        self._end(run, Outcome.LOST, 0)

    def open_nodes(self, record: RunnerRecord) -> None:
        """Open a runner's nodes, if nothing speaks against it."""
        if not record.lost and not record.unsure and not record.strays:
            for node in record.nodes:
                self.ledger.set_up(node, True)
                self.grants.freed.append(node)

    def lose(self, record: RunnerRecord) -> None:
        """A runner's lease is over and nobody answers: its nodes are closed and its attempts are lost."""
        self._mark("warden.lost_runner")
        record.lost = True
        record.strays.clear()
        for node in record.nodes:
            self.ledger.set_up(node, False)
        for run in [run for run in self.ledger.runs.values() if run.node in record.nodes]:
            self._end(run, Outcome.LOST, 0)
