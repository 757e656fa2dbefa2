"""Jobs out of brokers' pasts: of simulated leagues, and of a few events made by hand."""

from collections.abc import Iterator
from heapq import merge
from pathlib import Path

import msgspec
import pytest

from hanse.core.broker.state import decode_state
from hanse.model.effects import Effect, JobAccepted, JobSettled, RequestRejected, TaskSettled
from hanse.model.events import Event, JobSubmitted, MessageReceived, Tick
from hanse.model.ids import SECOND, JobId, job_id, task_id
from hanse.model.job import JobClass, JobSpec, TaskGroup
from hanse.model.messages import (
    AttemptEnd,
    Envelope,
    Outcome,
    OwnershipReply,
    Replica,
    ReplicateJobs,
    ReplicaUpdate,
    ResourceUsage,
    TaskUpdates,
)
from hanse.model.resources import Resources
from hanse.sim.replay.fault_file import read_faults
from hanse.sim.replay.hanse_with_faults import RunWithFaults
from hanse.sim.replay.run_records import ReplaySettings, ReplayWorkload
from hanse.sim.traces import journal_jobs
from hanse.sim.traces.chunk_builder import NameTable, TraceRow
from hanse.sim.traces.journal_jobs import ClockShift, JournalJobs
from hanse.sim.traces.read_report import ReadReport

LEAGUE = ReplaySettings(nodes=40, clusters=4, brokers=3, heartbeat_us=SECOND)
NONE = ClockShift()


@pytest.fixture
def work() -> ReplayWorkload:
    """60 jobs of 8 tasks of 20 to 27 s, one every 8 s."""
    jobs, tasks = 60, 8
    return ReplayWorkload(
        "made",
        [job * 8 * SECOND for job in range(jobs)],
        [job * tasks for job in range(jobs + 1)],
        [(20 + task) * SECOND for _ in range(jobs) for task in range(tasks)],
        [23_500_000] * jobs,
        [0] * jobs,
    )


def told(run: RunWithFaults, names: list[str]) -> tuple[list[TraceRow], ReadReport]:
    """The rows that the journals of these brokers give."""
    report = ReadReport()
    past = JournalJobs(report, NameTable(report))
    machines = {name: run.league.brokers[name]._factory() for name in names}

    def stream(name: str) -> Iterator[tuple[int, str, int, Event]]:
        for number, event in enumerate(run.league.brokers[name].journal):
            yield event.at, name, number, event

    rows: list[TraceRow] = []
    for _, name, _, event in merge(*map(stream, names)):
        past.add_event(name, event, machines[name].handle(event), NONE)
        rows += past.ready_rows()
    rows += past.remaining_rows()
    return rows, report


def faulted(work: ReplayWorkload, tmp_path: Path, text: str) -> RunWithFaults:
    path = tmp_path / "faults.txt"
    path.write_text(text, encoding="utf-8")
    settings = msgspec.structs.replace(LEAGUE, faults=str(path))
    run = RunWithFaults(work, settings, read_faults(settings))
    assert run.run(None).complete
    assert all(process.snapshot is None for process in run.league.brokers.values()), "whole journals"
    return run


@pytest.mark.parametrize(
    ("text", "late"),
    [("", 1), ("lose broker 2 at 200s", 60), ("lose cluster 3 at 200s for 5m", 1)],
)
def test_a_simulated_leagues_journals_give_its_workload_back(
    work: ReplayWorkload, tmp_path: Path, text: str, late: int
) -> None:
    run = faulted(work, tmp_path, text)
    rows, report = told(run, list(run.league.brokers))
    assert (len(rows), report.skipped, report.bad) == (work.job_count, {}, 0)
    assert [row.arrival for row in rows] == sorted(row.arrival for row in rows)
    for job, row in enumerate(rows):
        assert abs(row.arrival - run.lead - work.arrival[job]) <= SECOND
        assert row.count == 8
        for index, ran in enumerate(row.durations):
            # this backend measures nothing: the time is between the news of the start and of the end, and an
            # heir hears of an end that its broker did not live to hear when it has taken over
            assert -SECOND < ran - (20 + index) * SECOND < late * SECOND


def test_a_past_that_begins_in_the_middle_knows_what_was_live_there(
    work: ReplayWorkload, tmp_path: Path
) -> None:
    run = faulted(work, tmp_path, "")
    name = next(iter(run.league.brokers))
    events = run.league.brokers[name].journal
    whole = {row.job for row in told(run, [name])[0]}
    machine = run.league.brokers[name]._factory()
    for event in events[: len(events) // 2]:
        machine.handle(event)
    report = ReadReport()
    past = JournalJobs(report, NameTable(report))
    state = decode_state(machine.dump())
    assert state.jobs
    assert any(ward.jobs for ward in state.standby_shards.values())
    past.add_state(state, ClockShift(1_000 * SECOND))
    rows: list[TraceRow] = []
    for event in events[len(events) // 2 :]:
        past.add_event(name, event, machine.handle(event), ClockShift(1_000 * SECOND))
        rows += past.ready_rows()
    rows += past.remaining_rows()
    assert {row.job for row in rows} < whole
    assert min(row.arrival for row in rows) > 1_000 * SECOND
    # when what was live there had started is not known, and this backend measures nothing
    assert set(report.skipped) <= {journal_jobs.NEVER_TIMED, journal_jobs.TASK_UNTIMED}
    assert len(set(state.jobs) - {row.job for row in rows}) == report.skipped.get(journal_jobs.NEVER_TIMED, 0)


# --- by hand ------------------------------------------------------------------------------------------------

ONE = job_id(1, 0)


def spec_of(*counts: int, client_id: str = "", needs: bool = False) -> JobSpec:
    groups = tuple(
        TaskGroup(
            name=f"g{place}",
            count=count,
            ask=Resources(cpu=500, memory=7, gpu=2),
            needs=(f"g{place - 1}",) if needs and place else (),
            duration=9,
        )
        for place, count in enumerate(counts)
    )
    return JobSpec(groups, tenant="ann", priority=3, klass=JobClass.LATENCY, client_id=client_id)


def news(at: int, *ends: AttemptEnd, started: tuple[tuple[int, int], ...] = ()) -> MessageReceived:
    begun = tuple((task_id(ONE, index), attempt, 0) for index, attempt in started)
    return MessageReceived(at, Envelope("c1", "b1", 1, 1, 0, TaskUpdates(begun, ends)))


def end_of(index: int, attempt: int = 1, ran: int = 0, outcome: Outcome = Outcome.SUCCEEDED) -> AttemptEnd:
    return AttemptEnd(
        task_id(ONE, index), attempt, outcome, usage=ResourceUsage(run_time=ran) if ran else None
    )


class Hand:
    """A past that is told by hand, of one broker."""

    def __init__(self) -> None:
        self.report = ReadReport()
        self.names = NameTable(self.report)
        self.past = JournalJobs(self.report, self.names)

    def take(self, event: Event, *commands: Effect) -> None:
        self.past.add_event("b1", event, list(commands), NONE)

    def job(self, spec: JobSpec, at: int = 5, job: JobId = ONE, request: int = 0) -> None:
        self.take(JobSubmitted(at, "me", request, spec), JobAccepted("me", request, job))

    def over(self, at: int, *tasks: tuple[int, int], job: JobId = ONE, ok: bool = True) -> None:
        outcome = Outcome.SUCCEEDED if ok else Outcome.FAILED
        settled = [TaskSettled(task_id(job, index), attempt, outcome) for index, attempt in tasks]
        self.take(Tick(at), *settled, JobSettled(job, outcome))

    def rows(self) -> list[TraceRow]:
        return [*self.past.ready_rows(), *self.past.remaining_rows()]


def test_a_row_keeps_what_a_job_asked_for() -> None:
    hand = Hand()
    hand.job(spec_of(2))
    hand.take(news(50, end_of(0, ran=30), end_of(1, ran=40)))
    hand.over(60, (0, 1), (1, 1))
    (row,) = hand.rows()
    assert (row.job, row.arrival, row.durations, row.count) == (ONE, 5, [30, 40], 2)
    assert (row.cpu, row.memory, row.gpu, row.estimate) == (500, 7, 2_000, 9)
    table = hand.names.table()
    assert (table[row.user], table[row.group]) == ("ann", "job")
    assert row.extra[:2] == (3, 0)
    assert [table[int(number)] for number in row.extra[2:]] == ["latency", "succeeded"]


def test_groups_are_entries_of_one_parent_with_their_needs() -> None:
    hand = Hand()
    hand.job(spec_of(1, 2, needs=True))
    hand.take(news(50, *(end_of(index, ran=10 + index) for index in range(3))))
    hand.over(60, (0, 1), (1, 1), (2, 1))
    first, second = hand.rows()
    assert (first.durations, second.durations) == ([10], [11, 12])
    assert first.parent == second.parent == ONE
    assert (first.key, second.key, first.needs, second.needs) == (0, 1, (), (0,))
    assert first.job != second.job


def test_the_attempt_that_counts_is_the_one_that_settled() -> None:
    hand = Hand()
    hand.job(spec_of(2))
    hand.take(news(20, started=((1, 1), (0, 2))))
    hand.take(news(30, end_of(0, ran=3, outcome=Outcome.LOST)))  # of the first attempt, late
    hand.take(news(50, end_of(0, 2, ran=30), end_of(1)))
    hand.take(news(90, end_of(0, 2, ran=77), end_of(1)))  # the network repeats itself
    hand.over(95, (0, 2), (1, 1))
    (row,) = hand.rows()
    assert row.durations == [30, 30]  # measured; from the news of the start to that of the end


def test_nothing_is_left_out_in_silence() -> None:
    hand = Hand()
    hand.job(spec_of(3))
    hand.take(news(50, end_of(0, ran=30)))
    hand.over(60, (0, 1), (1, 0), (2, 1), ok=False)  # one ran, one never did, of one nothing is known
    hand.job(spec_of(1), job=job_id(1, 1), request=1)
    hand.over(70, (0, 0), job=job_id(1, 1), ok=False)
    hand.job(spec_of(1), job=job_id(1, 2), request=2)
    hand.over(80, (0, 1), job=job_id(1, 99))
    hand.take(JobSubmitted(90, "me", 3, spec_of(1)), RequestRejected("me", 3, "full"))
    assert [row.durations for row in hand.rows()] == [[30]]
    assert hand.report.skipped == {
        journal_jobs.TASK_NEVER_RAN: 1,
        journal_jobs.TASK_UNTIMED: 1,
        journal_jobs.NEVER_RAN: 1,
        journal_jobs.UNKNOWN: 1,
        journal_jobs.NOT_ENDED: 1,
    }


def test_a_job_arrives_when_it_is_first_submitted_and_is_told_once() -> None:
    hand = Hand()
    hand.take(JobSubmitted(5, "me", 0, spec_of(1, client_id="mine")))
    hand.take(JobSubmitted(9, "me", 1, spec_of(1, client_id="mine")), JobAccepted("me", 1, ONE))
    hand.take(news(50, end_of(0, ran=30)))
    hand.over(60, (0, 1))
    hand.take(JobSubmitted(70, "me", 2, spec_of(1, client_id="mine")), JobAccepted("me", 2, ONE))
    hand.over(80, (0, 1))  # an adopter says it again
    (row,) = hand.rows()
    assert row.arrival == 5
    assert hand.report.skipped == {}


def test_an_heir_alone_tells_what_it_adopted() -> None:
    hand = Hand()
    mine, theirs = ONE, job_id(2, 7)
    copies = tuple(Replica(job, spec_of(1), 4, ()) for job in (mine, theirs))
    hand.take(MessageReceived(10, Envelope("b2", "b1", 1, 1, 0, ReplicateJobs("b2#1", 1, copies))))
    hand.take(MessageReceived(20, Envelope("b2", "b1", 1, 2, 0, ReplicaUpdate("b2#1", (), forget=(theirs,)))))
    hand.take(
        MessageReceived(
            90,
            Envelope("c1", "b1", 1, 1, 0, OwnershipReply("b2#1", 2, "b1", True, 1, (), (end_of(0, ran=30),))),
        )
    )
    hand.over(95, (0, 1))
    (row,) = hand.rows()
    assert (row.job, row.arrival, row.durations) == (mine, 6, [30])
    assert hand.report.skipped == {}, "a copy that was forgotten is no job of this broker"


def test_rows_wait_for_earlier_jobs_but_not_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand()
    later = job_id(1, 1)
    hand.job(spec_of(1), at=5)
    hand.job(spec_of(1), at=6, job=later, request=1)
    end = AttemptEnd(task_id(later, 0), 1, Outcome.SUCCEEDED, usage=ResourceUsage(run_time=4))
    hand.take(MessageReceived(9, Envelope("c1", "b1", 1, 1, 0, TaskUpdates((), (end,)))))
    hand.over(10, (0, 1), job=later)
    assert list(hand.past.ready_rows()) == []
    monkeypatch.setattr(journal_jobs, "HELD_TASKS_MAX", 0)
    assert [row.job for row in hand.past.ready_rows()] == [later]
