"""The read models against the broker itself: the same states after every few events, whatever happens."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanse.api.row_records import TaskRow
from hanse.core.broker.broker import Broker
from hanse.core.config import Timings
from hanse.live.readmodel import unended_job
from hanse.live.readmodel.read_model import ReadModel
from hanse.live.readmodel.schema import dump_content
from hanse.live.readmodel.unended_job import LARGE_JOB_TASKS
from hanse.model.decision_record import DecisionKind
from hanse.model.effects import SendMessage
from hanse.model.ids import SECOND, JobId, job_text
from hanse.model.job import Affinity, OnLoss
from hanse.model.messages import Claim, Outcome, ResourceUsage, TaskUpdates
from tests.core.wired import job, node, tasks
from tests.live.readmodel.histories import EPOCH, Past, Step, Told, disagreements, outcomes, trial

MINUTE = 60 * SECOND
SEEDS = (3, 8, 19, 38, 60, 72)
"""Simulated leagues with adoptions, abandoned adoptions, lost clusters, dependencies and cancellations."""


@pytest.fixture
def league(tmp_path: Path) -> Iterator[Told]:
    """One broker, one cluster of one node with four CPUs."""
    told = Told(tmp_path, {"c1": (node(),)})
    yield told
    told.close()


def states(league: Told, number: JobId, broker: str = "b1") -> list[str]:
    return [row.state for row in league.ask(broker).tasks(number)]


def task(league: Told, number: JobId, index: int = 0, broker: str = "b1") -> TaskRow:
    return league.ask(broker).tasks(number, limit=1, after=index - 1)[0]


# --- stories -----------------------------------------------------------------------------------------------


def test_a_job_runs_and_ends(league: Told) -> None:
    number = league.submit(job(tasks(3, 2_000), name="sort", tenant="t1", client_id="mine"))
    league.agree()
    assert states(league, number) == ["running", "running", "queued"]
    row = league.ask().jobs()[0]
    assert (row.id, row.name, row.tenant, row.state, row.owner) == ("1-0", "sort", "t1", "running", "b1")
    assert (row.total, row.waiting, row.running, row.client_id) == (3, 1, 2, "mine")
    league.end(number, 0, 1)
    league.end(number)
    row = league.ask().jobs()[0]
    assert (row.state, row.succeeded, row.waiting, row.clusters) == ("succeeded", 3, 0, ("c1",))
    assert row.ended is not None
    assert row.started is not None
    assert row.submitted is not None
    assert row.submitted <= row.started < row.ended <= EPOCH + league.now


def test_a_rejected_job_is_not_shown(league: Told) -> None:
    league.rejected(job(tasks(1, 9_000)))
    assert league.ask().jobs() == []


def test_a_repeated_submission_is_one_job(league: Told) -> None:
    first = league.submit(job(tasks(1), client_id="x"))
    assert league.submit(job(tasks(1), client_id="x")) == first
    league.end(first)
    assert league.submit(job(tasks(1), client_id="x")) == first
    rows = league.ask().jobs()
    assert [(row.id, row.state) for row in rows] == [(job_text(first), "succeeded")]


def test_ends_keep_their_code_and_place(league: Told) -> None:
    number = league.submit(job(tasks(2)))
    league.end(number, 1, outcome=Outcome.FAILED, code=3)
    row = task(league, number, 1)
    assert (row.state, row.outcome, row.code, row.cluster, row.node) == ("failed", "failed", 3, "c1", 0)
    assert row.attempt == 1
    assert task(league, number, 0).outcome == ""


@pytest.mark.parametrize("usage", [None, ResourceUsage(1, 2, 3)], ids=["unmeasured", "measured"])
def test_a_lost_attempt_has_no_exit_code(league: Told, usage: ResourceUsage | None) -> None:
    """Nobody knows it: a 0 would say that the program succeeded."""
    number = league.submit(job(tasks(1), on_loss=OnLoss.FAIL))
    ((task_number, attempt),) = league.live
    league.exit(task_number, attempt, Outcome.LOST, usage=usage)
    league.run(SECOND)
    row = task(league, number)
    assert (row.state, row.outcome, row.code, row.usage) == ("failed", "lost", None, usage)
    (end,) = league.ask().task_summary(number).ends
    assert (end.outcome, end.code) == ("lost", None)


def test_an_attempt_that_never_ran_has_no_exit_code(league: Told) -> None:
    number = league.submit(job(tasks(1)))
    league.stubborn = True
    league.cancel(number)
    league.end(number, outcome=Outcome.UNSTARTED)
    row = task(league, number)
    assert (row.state, row.outcome, row.code) == ("cancelled", "unstarted", None)


def test_a_retried_task_shows_its_attempts(league: Told) -> None:
    number = league.submit(job(tasks(1), retries=1))
    league.end(number, outcome=Outcome.FAILED, code=1)
    row = task(league, number)
    assert (row.state, row.attempt, row.failures) == ("running", 2, 1)
    league.end(number, outcome=Outcome.FAILED, code=2)
    row = task(league, number)
    assert (row.state, row.attempt, row.failures, row.code) == ("failed", 2, 2, 2)
    answers = [entry.answered for entry in league.ask().decisions(number)]
    assert answers == [DecisionKind.PLACED, DecisionKind.RETRIED, DecisionKind.PLACED]


def test_a_cancelled_job_says_who_asked(league: Told) -> None:
    number = league.submit(job(tasks(6)))
    league.stubborn = True
    league.cancel(number)
    assert states(league, number) == ["running"] * 4 + ["cancelled"] * 2
    league.stubborn = False
    league.end(number, outcome=Outcome.CANCELLED, code=-15)
    row = league.ask().jobs()[0]
    assert (row.state, row.cancelled, row.cancel_reason) == ("cancelled", 6, "asked for by me")


def test_groups_are_blocked_until_what_they_need_has_succeeded(league: Told) -> None:
    number = league.submit(job(tasks(2, name="map"), tasks(1, name="reduce", needs=("map",))))
    detail = league.ask().job(number)
    assert detail is not None
    assert [group.states for group in detail.groups] == [{"running": 2}, {"blocked": 1}]
    league.end(number, 0)
    assert states(league, number) == ["succeeded", "running", "blocked"]
    league.end(number, 1)
    assert states(league, number) == ["succeeded", "succeeded", "running"]


def test_a_job_is_blocked_by_the_jobs_before_it(league: Told) -> None:
    first = league.submit(job(tasks(1)))
    second = league.submit(job(tasks(1), after=(first,)))
    assert league.ask().jobs(state="blocked")[0].id == job_text(second)
    detail = league.ask().job(second)
    assert detail is not None
    assert detail.after == ((job_text(first), "running"),)
    league.end(first)
    assert states(league, second) == ["running"]


def test_what_was_claimed_and_has_not_started_is_placed(league: Told) -> None:
    request = league.hand_in(job(tasks(2)))
    league.prompt("b1")  # told to nobody who could start it: starts linger
    number = league.replies[request].job  # type: ignore[union-attr]
    row = task(league, number, 1)
    assert (row.state, row.attempt, row.cluster, row.node) == ("placed", 1, "c1", 0)
    assert league.ask().jobs()[0].state == "placed"
    league.run(SECOND)
    assert states(league, number) == ["running", "running"]


def test_a_cluster_that_cannot_be_reached_loses_its_tasks(tmp_path: Path) -> None:
    timings = Timings(cluster_lease=5 * SECOND, runner_lease=2 * SECOND)
    league = Told(tmp_path, {"c1": (node(4_000),), "c2": (node(1_000),)}, timings=timings)
    number = league.submit(job(tasks(3)))
    there = [row.index for row in league.ask().tasks(number) if row.cluster == "c1"]
    assert there
    league.deaf["c1"] = True
    league.run(MINUTE)
    league.agree()
    shown = league.ask().tasks(number)
    assert [row.state for row in shown if row.index in there] == ["queued"] * len(there)
    league.close()


def test_a_restart_of_the_broker_changes_nothing(league: Told) -> None:
    number = league.submit(job(tasks(3, 2_000)))
    before = states(league, number)
    league.restart("b1")
    league.run(SECOND)
    league.agree()
    assert states(league, number) == before


# --- simulated leagues -------------------------------------------------------------------------------------


def halves(past: Past, rng: Random) -> Iterator[list[Step]]:
    """A history in batches of random sizes; the machine has taken what was given out."""
    batch: list[Step] = []
    size = rng.randint(1, 60)
    for step in past.steps():
        batch.append(step)
        if len(batch) >= size:
            yield batch
            batch, size = [], rng.randint(1, 60)
    yield batch


@pytest.mark.parametrize("large", [LARGE_JOB_TASKS, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_projection_is_what_the_broker_holds_through_all_faults(
    seed: int, large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unended_job, "LARGE_JOB_TASKS", large)
    rng = Random(seed)
    settled = 0
    for past in trial(seed):
        path, name = tmp_path / f"{past.name}.sqlite", past.name
        reads, begun, whole = ReadModel(path, name), None, list[Step]()
        for batch in halves(past, rng):
            whole += batch
            reads.apply(whole[-2 * len(batch) - 7 :], EPOCH)  # with some that it has had before
            if rng.random() < 0.1:  # the process dies and comes back
                reads.close()
                reads = ReadModel(path, name)
            assert disagreements(reads, past.machine) == [], f"{name} at {len(whole)}"
            if begun is not None:
                begun.apply(whole[begun.applied :], EPOCH)
                assert disagreements(begun, past.machine) == [], f"{name} at {len(whole)}, begun late"
            elif rng.random() < 0.05 and isinstance(past.machine, Broker):
                begun = ReadModel(tmp_path / f"{name}.begun.sqlite", name)
                begun.reset_to_state(past.machine.dump(), len(whole), past.machine.config.clusters)
        told = outcomes(whole)
        for number, outcome in told.items():
            detail = reads.job(number)
            assert detail is not None
            assert detail.row.state == outcome
        settled += len(told)
        anew = ReadModel(tmp_path / f"{name}.anew.sqlite", name)
        for at in range(0, len(whole), 500):
            anew.apply(whole[at : at + 500], EPOCH)
        for some in (reads, anew, begun):
            if some is not None:
                some.close()
        assert dump_content(path) == dump_content(tmp_path / f"{name}.anew.sqlite")
    assert settled > 10


def test_the_simulated_leagues_show_what_they_must() -> None:
    """The seeds are worth their time: copies, adoptions, taken estates, starts and cancellations occur."""
    seen = set()
    for past in [past for seed in (5, 8, 18) for past in trial(seed)]:
        for _, event, commands in past.steps():
            seen |= {type(getattr(getattr(event, "envelope", None), "body", None)).__name__}
            seen |= {
                f"sends {type(command.envelope.body).__name__}"
                for command in commands
                if isinstance(command, SendMessage)
            }
    assert {
        "ReplicateJobs",
        "ReplicaUpdate",
        "OwnershipTransferred",
        "TaskUpdates",
        "ClaimReply",
        "OwnershipReply",
    } <= seen
    assert {
        "sends OwnershipTransferred",
        "sends RequestTakeover",
        "sends AbortTakeover",
        "sends Claim",
    } <= seen


# --- batches -----------------------------------------------------------------------------------------------


@cache
def short_history() -> list[Step]:
    """A busy minute of one broker."""
    told = Told(Path(), {"c1": (node(), node(2_000, "r2")), "c2": (node(1_000),)}, brokers=("b1", "b2"))
    numbers = [
        told.submit(job(tasks(2), tasks(1, name="last", needs=("main",)), retries=1)),
        told.submit(job(tasks(3, 2_000), gang=False, tenant="t2")),
        told.submit(job(tasks(2, 500), gang=True)),
        told.submit(job(tasks(2, affinity=(Affinity("x", apart=True),)), labels=("x",))),
        told.submit(job(tasks(1)), "b2"),
    ]
    told.end(numbers[0], 0, outcome=Outcome.FAILED, code=9)
    told.end(numbers[1], 0)
    told.cancel(numbers[2])
    for _ in range(4):
        told.end(numbers[0])
        told.end(numbers[1])
        told.end(numbers[3])
    told.end(numbers[4])
    return told.history["b1"]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cut_of_a_history_gives_the_same_file(data: st.DataObject, tmp_path: Path) -> None:
    steps = short_history()
    places = []
    for number in range(2):
        path = tmp_path / f"{number}.sqlite"
        path.unlink(missing_ok=True)
        reads = ReadModel(path, "b1")
        at = 0
        while at < len(steps):
            behind = data.draw(st.integers(at + 1, len(steps))) if number else len(steps)
            again = data.draw(st.integers(0, at)) if number else at
            reads.apply(steps[again:behind], EPOCH)
            if number and data.draw(st.booleans()):
                reads.close()
                reads = ReadModel(path, "b1")
            at = behind
        assert reads.applied == len(steps)
        reads.close()
        places.append(dump_content(path))
    assert places[0] == places[1]
    assert len(places[0]["jobs"]) == 5


def test_after_every_single_event_the_projection_is_what_the_broker_holds(tmp_path: Path) -> None:
    """Also between the lines: what is released and stands behind others gets no decision of its own."""
    told = Told(tmp_path, {"c1": (node(2_000),)})
    first = told.submit(job(tasks(2)))
    told.submit(job(tasks(3)))
    told.submit(job(tasks(1), tasks(2, name="then", needs=("main",)), after=(first,)))
    for _ in range(6):
        for number in range(3):
            told.end(JobId((1 << 32) + number))
    assert len(told.over) == 3
    past = Past("b1", told.makers["b1"](), [event for _, event, _ in told.history["b1"]])
    reads = ReadModel(tmp_path / "single.sqlite", "b1")
    for step in past.steps():
        reads.apply([step], EPOCH)
        assert disagreements(reads, past.machine) == [], f"at {step[0]}"
    reads.close()


def test_applying_a_batch_again_changes_nothing(tmp_path: Path) -> None:
    steps = short_history()
    path = tmp_path / "reads.sqlite"
    reads = ReadModel(path, "b1")
    reads.apply(steps, EPOCH)
    before = dump_content(path)
    reads.apply(steps[10:20], EPOCH + MINUTE)
    reads.apply(steps, EPOCH + MINUTE)
    assert dump_content(path) == before
    reads.close()


def test_a_batch_that_cannot_be_written_leaves_no_trace(tmp_path: Path) -> None:
    steps = short_history()
    path = tmp_path / "reads.sqlite"
    reads = ReadModel(path, "b1")
    reads.apply(steps[:50], EPOCH)
    before = dump_content(path)
    broken: list[Step] = [*steps[50:60], (61, None, [])]  # type: ignore[list-item]
    with pytest.raises(AttributeError):
        reads.apply(broken, EPOCH)
    assert dump_content(path) == before
    assert reads.applied == 50
    reads.apply(steps[50:], EPOCH)
    after = dump_content(path)
    reads.close()
    anew = ReadModel(tmp_path / "anew.sqlite", "b1")
    anew.apply(steps, EPOCH)
    anew.close()
    assert dump_content(tmp_path / "anew.sqlite") == after


def test_messages_out_of_turn_are_taken_in_turn(tmp_path: Path) -> None:
    """The unruly network doubles and reorders; the broker sorts it out, and so must the projection."""
    told = Told(tmp_path, {"c1": (node(),), "c2": (node(2_000),)}, brokers=("b1", "b2"))
    told.unruly = Random(7)
    numbers = [told.submit(job(tasks(4), retries=1)) for _ in range(3)]
    for turn in range(12):
        told.agree()
        for number in numbers:
            told.end(number, turn % 4, outcome=Outcome.FAILED if turn == 2 else Outcome.SUCCEEDED, code=1)
    told.agree()
    claims = told.bodies(Claim)
    assert any(entry.batches for entry in claims)
    assert any(entry.started for entry in told.bodies(TaskUpdates))
    assert all(told.ask().job(number).row.state == "succeeded" for number in numbers)  # type: ignore[union-attr]
    told.close()
