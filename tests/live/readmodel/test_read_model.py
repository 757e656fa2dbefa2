"""The file and its questions: pages, filters, bounds, files that are not ours, several threads."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hanse.core.broker import job_table
from hanse.live.readmodel import schema, sqlite_writer
from hanse.live.readmodel.read_model import ReadModel
from hanse.model.constraints import Is
from hanse.model.decision_record import ConsideredCluster, DecisionKind, DecisionRecord
from hanse.model.effects import JobSettled, RecordDecision
from hanse.model.events import JobSubmitted, Tick
from hanse.model.history_effects import (
    AttemptsEnded,
    CopiesAdded,
    CopiesDropped,
    JobAdded,
    JobsTransferred,
    NodesSubstituted,
    TasksCancelled,
    TasksPlaced,
    TasksStarted,
)
from hanse.model.ids import SECOND, JobId, job_id, job_text, task_id
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import (
    AttemptEnd,
    Outcome,
    Replica,
    ResourceUsage,
    Shape,
    TaskBatch,
    TaskTemplate,
)
from hanse.model.program import Program, encode_program
from hanse.model.resources import Resources
from tests.live.readmodel.histories import EPOCH, Step

ASK = Resources(cpu=1_000)


class Script:
    """Writes a broker's history by hand."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.at = 0

    def add(self, event: object, *commands: object) -> None:
        self.steps.append((len(self.steps) + 1, event, list(commands)))  # type: ignore[arg-type]

    def submit(self, serial: int, *commands: object, **rest: object) -> JobId:
        number, spec = job_id(1, serial), JobSpec(**{"groups": (TaskGroup(),), **rest})  # type: ignore[arg-type]
        added = JobAdded(number, spec, "b1#1", self.at)
        self.add(JobSubmitted(self.at, "me", serial, spec), added, *commands)
        return number

    def claim(self, number: JobId, *nodes: int, attempt: int = 1, size: Resources = ASK) -> None:
        tasks = tuple(range(len(nodes)))
        lot = TaskBatch(
            number, 0, TaskTemplate(Shape(ASK), "b1#1"), tasks, (attempt,) * len(nodes), nodes, size
        )
        self.tell(TasksPlaced("c1", lot))

    def tell(self, *facts: object) -> None:
        self.add(Tick(self.at), *facts)

    def start(self, number: JobId, *nodes: int, attempt: int = 1) -> None:
        started = tuple((task_id(number, index), attempt, node) for index, node in enumerate(nodes))
        self.tell(TasksStarted(started))

    def succeed(self, number: JobId, count: int = 1, ran: int = 0) -> None:
        usage = ResourceUsage(1, 2, ran) if ran else None
        ids = [task_id(number, index) for index in range(count)]
        ends = [
            (task, job_table.SUCCEEDED, AttemptEnd(task, 1, Outcome.SUCCEEDED, 0, usage, "fine"))
            for task in ids
        ]
        self.tell(AttemptsEnded(list(ends)), JobSettled(number, Outcome.SUCCEEDED))

    def whole(self, serial: int, **rest: object) -> JobId:
        number = self.submit(serial, **rest)
        self.claim(number, 0)
        self.start(number, 0)
        self.succeed(number)
        return number


@pytest.fixture
def reads(tmp_path: Path) -> Iterator[ReadModel]:
    found = ReadModel(tmp_path / "reads.sqlite", "b1", kept_jobs_max=10)
    yield found
    found.close()


@pytest.fixture
def script() -> Script:
    return Script()


# --- jobs --------------------------------------------------------------------------------------------------


def test_pages_hold_every_job_once_the_newest_first(reads: ReadModel, script: Script) -> None:
    for serial in range(23):
        script.at = serial // 4 * SECOND  # several at the same time
        script.submit(serial)
    reads.apply(script.steps, EPOCH)
    for by in ("cursor", "id"):
        seen: list[str] = []
        after = None
        while page := reads.jobs(limit=5, after=after):
            seen += [row.id for row in page]
            after = getattr(page[-1], by)
        assert seen == [job_text(job_id(1, serial)) for serial in reversed(range(23))]


def test_a_page_behind_nothing_known_is_empty(reads: ReadModel, script: Script) -> None:
    script.submit(0)
    reads.apply(script.steps, EPOCH)
    for after in ("1-7", "nonsense", "x.1-0", "1" * 30 + ".1-0"):
        assert reads.jobs(after=after) == []


def test_a_page_goes_on_behind_a_job_that_was_dropped(reads: ReadModel, script: Script) -> None:
    for serial in range(3):
        script.at += SECOND
        script.submit(serial)
    reads.apply(script.steps, EPOCH)
    cursor = reads.jobs()[1].cursor
    moment, _, _ = cursor.rpartition(".")
    assert [row.id for row in reads.jobs(after=f"{moment}.1-1")] == ["1-0"]


def test_jobs_are_found_by_state_tenant_and_name(reads: ReadModel, script: Script) -> None:
    script.whole(0, tenant="a", name="x")
    script.submit(1, tenant="a", name="y")
    script.submit(2, tenant="b", name="y")
    reads.apply(script.steps, EPOCH)
    assert [row.id for row in reads.jobs(state="succeeded")] == ["1-0"]
    assert [row.id for row in reads.jobs(state="queued")] == ["1-2", "1-1"]
    assert [row.id for row in reads.jobs(tenant="a")] == ["1-1", "1-0"]
    assert [row.id for row in reads.jobs(tenant="a", name="y", state="queued")] == ["1-1"]
    assert reads.jobs(state="lost") == []


def test_a_job_shows_what_its_user_wrote(reads: ReadModel, script: Script) -> None:
    group = TaskGroup(
        count=2, ask=Resources(cpu=500, memory=1 << 30), where=Is("zone", "a"), duration=7,
        payload=encode_program(Program(("sort", "-n"))),
    )  # fmt: skip
    number = script.submit(0, groups=(group,), priority=5)
    reads.apply(script.steps, EPOCH)
    detail = reads.job(number)
    assert detail is not None
    (shown,) = detail.groups
    assert (shown.where, shown.command, shown.duration) == ('zone == "a"', ("sort", "-n"), 7)
    assert shown.states == {"queued": 2}
    assert detail.row.priority == 5
    assert not detail.copy
    assert reads.job(job_id(1, 99)) is None


# --- tasks -------------------------------------------------------------------------------------------------


def test_tasks_by_state_and_page(reads: ReadModel, script: Script) -> None:
    number = script.submit(0, groups=(TaskGroup(count=6),))
    script.claim(number, 5, 6, 7, 8)
    script.start(number, 5, 6)
    reads.apply(script.steps, EPOCH)
    assert [row.state for row in reads.tasks(number)] == ["running"] * 2 + ["placed"] * 2 + ["queued"] * 2
    assert [row.index for row in reads.tasks(number, state="placed")] == [2, 3]
    assert [row.node for row in reads.tasks(number, limit=3)] == [5, 6, 7]
    assert [row.index for row in reads.tasks(number, limit=2, after=3)] == [4, 5]
    assert reads.tasks(job_id(1, 9)) == []
    assert reads.tasks(number, state="odd") == []


def test_a_substitute_node_is_shown(reads: ReadModel, script: Script) -> None:
    number = script.submit(0, groups=(TaskGroup(count=2),))
    script.claim(number, 5, 6)
    reads.apply(script.steps, EPOCH)
    script.tell(
        NodesSubstituted("c2", ((task_id(number, 0), 8),)), NodesSubstituted("c1", ((task_id(number, 1), 9),))
    )
    reads.apply(script.steps, EPOCH)
    assert [row.node for row in reads.tasks(number)] == [5, 9]


def test_usage_gives_the_start_and_a_duration(reads: ReadModel, script: Script) -> None:
    number = script.submit(0, name="sort", tenant="t")
    script.claim(number, 3)
    script.at = 10 * SECOND
    script.start(number, 3)
    script.at = 12 * SECOND
    script.succeed(number, ran=5 * SECOND // 2)
    reads.apply(script.steps, EPOCH + 12 * SECOND)
    (row,) = reads.tasks(number)
    assert row.usage == ResourceUsage(1, 2, 5 * SECOND // 2)
    assert (row.note, row.code, row.outcome) == ("fine", 0, "succeeded")
    assert row.ended == EPOCH + 12 * SECOND
    assert row.started == row.ended - 5 * SECOND // 2  # more exact than the news of it
    assert reads.durations("sort", "t", "main") == [5 * SECOND // 2]
    assert reads.durations("sort", "other", "main") == []


def test_durations_are_the_latest_of_each_name(
    reads: ReadModel, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "DURATIONS_EACH_MAX", 2)
    monkeypatch.setattr(sqlite_writer, "DURATIONS_KEYS_MAX", 2)
    for serial, name in enumerate("aaabcb"):
        number = script.submit(serial, name=name)
        script.claim(number, 0)
        script.start(number, 0)
        script.succeed(number, ran=serial + 1)
        reads.apply(script.steps, EPOCH)
    assert reads.durations("a", "default", "main") == []  # two other names were seen since
    assert reads.durations("b", "default", "main") == [4, 6]
    assert reads.durations("c", "default", "main") == [5]


def test_what_runs_where_and_how_large(reads: ReadModel, script: Script) -> None:
    first = script.submit(0, name="x")
    script.claim(first, 4)
    script.start(first, 4)
    second = script.submit(1, groups=(TaskGroup(count=2, ask=ASK),))
    script.claim(second, 4, 7, size=Resources(cpu=3_000))
    reads.apply(script.steps, EPOCH)
    script.start(second, 4, 7)
    reads.apply(script.steps, EPOCH)
    found = reads.running_tasks("c1", 4)
    assert [(one.job, one.index, one.size.cpu) for one in found] == [("1-0", 0, 1_000), ("1-1", 0, 3_000)]
    assert len(reads.running_tasks()) == 3
    assert reads.running_tasks("c9") == []


def test_copies_of_an_older_term_go_when_all_come_anew(reads: ReadModel, script: Script) -> None:
    spec = JobSpec((TaskGroup(count=2),))
    copies = [Replica(job_id(2, serial), spec, 5 * SECOND, ()) for serial in range(2)]
    script.at = 60 * SECOND
    script.tell(CopiesAdded("b2#1", "b2", tuple(copies)))
    script.tell(CopiesDropped("b2#1", "b2"), CopiesAdded("b2#1", "b2", tuple(copies[1:])))
    reads.apply(script.steps[:1], EPOCH + 60 * SECOND)
    assert [(row.id, row.owner) for row in reads.jobs()] == [("2-1", "b2"), ("2-0", "b2")]
    assert reads.jobs()[0].submitted == EPOCH + 55 * SECOND
    assert reads.tenant_totals() == []
    reads.apply(script.steps, EPOCH + 60 * SECOND)
    assert [row.id for row in reads.jobs()] == ["2-1"]


def test_copies_are_bounded(reads: ReadModel, script: Script) -> None:
    copies = [Replica(job_id(2, serial), JobSpec((TaskGroup(),)), 0, ()) for serial in range(14)]
    script.tell(CopiesAdded("b2#1", "b2", tuple(copies)))
    mine = script.submit(0)
    reads.apply(script.steps, EPOCH)
    kept = [f"2-{serial}" for serial in range(13, 3, -1)]
    assert [row.id for row in reads.jobs()] == [*kept, job_text(mine)]


def test_a_job_that_was_taken_away_goes_with_its_placements(tmp_path: Path, script: Script) -> None:
    first = ReadModel(tmp_path / "few.sqlite", "b1", kept_jobs_max=1)
    numbers = [script.submit(serial) for serial in range(2)]
    for number in numbers:
        script.claim(number, 0)
    script.tell(JobsTransferred("b1#1", "b2", tuple(numbers)))
    first.apply(script.steps, EPOCH)
    assert [(row.id, row.owner, row.state) for row in first.jobs()] == [("1-1", "b2", "placed")]
    assert len(schema.dump_content(first.path)["lots"]) == 1
    first.close()
    again = ReadModel(tmp_path / "few.sqlite", "b1", kept_jobs_max=1)
    assert [row.state for row in again.tasks(numbers[1])] == ["placed"]
    again.close()


# --- the rest ----------------------------------------------------------------------------------------------


def test_totals_by_tenant(reads: ReadModel, script: Script) -> None:
    script.whole(0, tenant="a")
    script.submit(1, tenant="a", groups=(TaskGroup(count=3),))
    script.submit(2, tenant="b")
    reads.apply(script.steps, EPOCH)
    first, second = reads.tenant_totals()
    assert (first.tenant, first.jobs, first.tasks) == (
        "a",
        {"queued": 1, "succeeded": 1},
        {"queued": 3, "succeeded": 1},
    )
    assert (second.tenant, second.tasks) == ("b", {"queued": 1})


def test_decisions_come_in_order_with_their_times(reads: ReadModel, script: Script) -> None:
    number = job_id(1, 0)
    considered = (ConsideredCluster("c1", 0, "no room in view"),)
    decisions = [
        DecisionRecord(0, "b1", number, 0, DecisionKind.WAITING, 1, "no room", considered),
        DecisionRecord(0, "b1", number, 0, DecisionKind.PLACED, 1, "room"),
    ]
    script.at = 5 * SECOND
    script.submit(0, *[RecordDecision(one) for one in decisions])
    reads.apply(script.steps, EPOCH + 5 * SECOND)
    found = reads.decisions(number)
    assert [(one.answered, one.reason, one.considered) for one in found] == [
        (DecisionKind.WAITING, "no room", considered),
        (DecisionKind.PLACED, "room", ()),
    ]
    assert {one.at for one in found} == {EPOCH + 5 * SECOND}
    assert [one.reason for one in reads.decisions(number, 1)] == ["room"]


def test_a_job_keeps_only_so_many_decisions(
    reads: ReadModel, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "DECISIONS_PER_JOB_MAX", 3)
    number = job_id(1, 0)
    script.submit(
        0,
        *[
            RecordDecision(DecisionRecord(0, "b1", number, 0, DecisionKind.MOVED, 1, str(at)))
            for at in range(5)
        ],
    )
    reads.apply(script.steps, EPOCH)
    assert [one.reason for one in reads.decisions(number)] == ["2", "3", "4"]


def test_changes_can_be_followed_from_any_serial(reads: ReadModel, script: Script) -> None:
    number = script.whole(0, name="x")
    reads.apply(script.steps, EPOCH)
    found = reads.changes_since(0)
    assert [(one.job, one.state, one.name) for one in found] == [
        (job_text(number), state, "x") for state in ("queued", "placed", "running", "succeeded")
    ]
    serials = [one.serial for one in found]
    assert serials == sorted(set(serials))
    assert reads.oldest_change() == serials[0]
    assert [one.serial for one in reads.changes_since(serials[1])] == serials[2:]
    assert [one.serial for one in reads.changes_since(0, 1)] == serials[:1]
    assert reads.changes_since(serials[-1]) == []


def test_changes_are_bounded(reads: ReadModel, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_writer, "CHANGES_MAX", 5)
    for serial in range(4):
        script.whole(serial)
        reads.apply(script.steps, EPOCH)
    assert [one.state for one in reads.changes_since(0)] == [
        "succeeded",
        "queued",
        "placed",
        "running",
        "succeeded",
    ]


def test_old_ended_jobs_go_with_all_that_is_theirs(reads: ReadModel, script: Script) -> None:
    live = script.submit(99)
    for serial in range(100, 125):
        script.whole(serial)
        if serial % 7 == 0:
            reads.apply(script.steps, EPOCH)
    reads.apply(script.steps, EPOCH)
    rows = reads.jobs(limit=100)
    assert [row.id for row in rows] == [f"1-{serial}" for serial in range(124, 114, -1)] + [job_text(live)]
    kept = {row[0] for row in schema.dump_content(reads.path)["tasks"]}
    assert kept == {job_id(1, serial) for serial in range(115, 125)}
    assert {row[0] for row in schema.dump_content(reads.path)["specs"]} == kept | {live}


def test_questions_of_many_threads_while_batches_are_applied(reads: ReadModel, script: Script) -> None:
    number = script.submit(0, groups=(TaskGroup(count=50),))
    for index in range(50):
        script.tell(TasksCancelled(number, ((index, 1),)))  # every batch moves one task
    reads.apply(script.steps[:1], EPOCH)

    def ask(_: int) -> bool:
        detail = reads.job(number)
        assert detail is not None
        row = detail.row
        return row.waiting + row.cancelled == sum(detail.groups[0].states.values()) == 50

    with ThreadPoolExecutor(20) as pool:
        answers = pool.map(ask, range(200))
        for step in script.steps[1:]:
            reads.apply([step], EPOCH)
        assert all(answers)
    assert reads.job(number).row.cancelled == 50  # type: ignore[union-attr]
