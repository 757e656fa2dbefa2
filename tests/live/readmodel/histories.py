"""Real histories for the tests of the read models, and the comparison with what the machine itself holds.

``Told`` is the wired league of the tests of the machines, with read models at every broker. ``trial`` runs a
whole simulated league under faults and gives each broker's history, as its journal has it.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from hanse.api.row_records import CANCELLED, PLACED, QUEUED, RUNNING, STATE_NAMES
from hanse.core.broker.broker import Broker
from hanse.core.broker.job_table import JobRecord
from hanse.core.broker.state import decode_state
from hanse.core.config import BrokerConfig
from hanse.core.machine import Machine
from hanse.live.readmodel.read_model import ReadModel
from hanse.live.readmodel.unended_job import STATE_OF_CODE
from hanse.model.effects import Effect, JobSettled
from hanse.model.events import Event
from hanse.model.ids import JobId, job_text
from hanse.sim.chaos import SeedRun
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.league import LeagueFactories, PolicyNames
from hanse.sim.shipped_league import shipped_factories
from hanse.sim.world import Violation
from tests.core.wired import Wired

Step = tuple[int, Event, list[Effect]]
EPOCH = 1_700_000_000_000_000
"""The time of day at the instant 0 of every test's clock, in unix microseconds."""


class Told(Wired):
    """A wired league in which every broker's history is kept, for read models to be fed with."""

    def __init__(self, directory: Path, *arguments: Any, **rest: Any) -> None:
        self.directory = directory
        self.history: dict[str, list[Step]] = {}
        self.reads: dict[str, ReadModel] = {}
        super().__init__(*arguments, **rest)

    def give(self, name: str, event: Event) -> list[Effect]:
        """Note every event that reaches a broker."""
        commands = super().give(name, event)
        if isinstance(self.machines[name], Broker):
            steps = self.history.setdefault(name, [])
            steps.append((len(steps) + 1, event, list(commands)))
        return commands

    def ask(self, name: str = "b1") -> ReadModel:
        """A broker's read models, up to date."""
        if name not in self.reads:
            self.reads[name] = ReadModel(self.directory / f"{name}.sqlite", name)
        reads = self.reads[name]
        reads.apply(self.history[name][reads.applied :], EPOCH + self.now)
        return reads

    def agree(self) -> None:
        """Every broker's read models say what the broker holds."""
        for name in self.history:
            assert disagreements(self.ask(name), self.machines[name]) == []

    def close(self) -> None:
        """Close all files."""
        for reads in self.reads.values():
            reads.close()
        self.reads.clear()


# --- comparison --------------------------------------------------------------------------------------------


def disagreements(reads: ReadModel, machine: Machine) -> list[str]:
    """Where the read models say something else than the broker holds."""
    state = decode_state(machine.dump())
    found = []
    for record in state.jobs.values():
        if record.admitted:
            found += _compare(reads, record, tuple(_clusters(machine)))
    for estate, ward in state.standby_shards.items():
        for job in ward.jobs:
            detail = reads.job(job)
            kept = reads._projector.live_jobs.get(job) if reads._projector is not None else None
            if kept is None or kept.shard != estate:
                continue  # an outdated copy: the job has joined another estate since, and may have ended
            if detail is None or detail.row.owner != ward.owner:
                found.append(f"{job_text(job)} of {estate} is not shown as {ward.owner}'s")
                continue
            ended = detail.row.succeeded + detail.row.failed + detail.row.cancelled
            count, cancelled = ward.task_ends[job].count, ward.jobs[job].cancelled or job in ward.cancelled
            if ended != count and not (cancelled and ended > count):  # what is cancelled will end
                found.append(f"{job_text(job)}: {ended} tasks ended, not {count}")
    return found


def _clusters(machine: Machine) -> Iterator[str]:
    assert isinstance(machine, Broker)
    yield from machine.config.clusters


def _compare(reads: ReadModel, record: JobRecord, clusters: tuple[str, ...]) -> list[str]:
    """One job."""
    name = job_text(record.id)
    detail = reads.job(record.id)
    if detail is None or detail.row.owner != reads.broker:
        return [f"{name} is not shown as ours"]
    rows = reads.tasks(record.id, limit=len(record.state))
    if [row.index for row in rows] != list(range(len(record.state))):
        return [f"{name} does not show every task"]
    found = []
    counted = dict.fromkeys(STATE_NAMES, 0)
    for row, code, attempt, place in zip(rows, record.state, record.attempt, record.place, strict=True):
        counted[row.state] += 1
        said, held = STATE_NAMES.index(row.state), STATE_OF_CODE[code]
        adopted = said == RUNNING and held == PLACED and row.started is None
        cut = record.cancelled and held <= QUEUED and said == CANCELLED  # the broker ends it in slices
        if said != held and not adopted and not cut:
            found.append(f"{name}.{row.index} is {STATE_NAMES[held]}, shown as {row.state}")
        if PLACED <= held <= RUNNING and (row.attempt, row.cluster) != (attempt, clusters[place]):
            found.append(f"{name}.{row.index} is attempt {attempt} in {clusters[place]}, shown as {row}")
    summed = dict.fromkeys(STATE_NAMES, 0)
    for group in detail.groups:
        for state, count in group.states.items():
            summed[state] += count
    if counted != summed:
        found.append(f"{name} counts {summed} tasks, and shows {counted}")
    return found


def outcomes(steps: list[Step]) -> dict[JobId, str]:
    """How the jobs ended that a history made known."""
    return {
        command.job: str(command.outcome)
        for _, _, commands in steps
        for command in commands
        if isinstance(command, JobSettled)
    }


# --- simulated leagues -------------------------------------------------------------------------------------


class Chronicle(JournalledProcess):
    """A process that keeps its whole journal, also what its snapshots made superfluous."""

    past: list[Event]

    def _take_snapshot(self) -> None:
        self.past = [*getattr(self, "past", []), *self.journal]
        super()._take_snapshot()

    def fresh(self) -> Machine:
        """A machine of this process that has seen nothing."""
        return self._factory()

    def whole(self) -> list[Event]:
        """Every event on record."""
        events = [*getattr(self, "past", []), *self.journal]
        return events[: len(events) - len(self.uncommitted)]


class Past(msgspec.Struct):
    """A broker's whole history, and a machine to take it through once more."""

    name: str
    machine: Machine
    events: list[Event]

    def steps(self) -> Iterator[Step]:
        """Event by event; the machine has taken each when it is given out."""
        for position, event in enumerate(self.events, 1):
            yield position, event, self.machine.handle(event)


def trial(seed: int) -> list[Past]:
    """The histories of all brokers of a simulated league, with its faults."""
    standard = shipped_factories()

    def broker(config: BrokerConfig, policies: PolicyNames) -> Machine:
        return standard.broker(msgspec.structs.replace(config, decisions=True), policies)

    factories = LeagueFactories(broker, standard.warden, standard.runner, Chronicle)
    run = SeedRun(seed, factories)
    with suppress(Violation):  # another test's business: a history is a history
        run.run()
    histories = []
    for name, process in run.league.brokers.items():
        assert isinstance(process, Chronicle)
        histories.append(Past(name, process.fresh(), process.whole()))
    return histories
