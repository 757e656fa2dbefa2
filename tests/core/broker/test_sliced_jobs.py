"""Jobs of very many tasks: no message outgrows a journal's record, no event does more than a slice of the
work, and what is half done when a member falls is finished by whoever comes after it."""

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.core.broker.failover.replica_updates import (
    INLINE_MAX,
    RUN_COMPARE_TASKS,
    TaskEnds,
    find_end_runs,
    new_task_ends,
)
from hanse.core.broker.job_table import BLOCKED, CANCELLED, FAILED, SUCCEEDED, WAITING
from hanse.core.broker.sliced_jobs import SLICE_PAUSE, find_tasks
from hanse.core.messaging.message_splitting import ENTRIES_MAX
from hanse.live.journal.layout import RECORD_BYTES_MAX
from hanse.model.effects import Effect
from hanse.model.events import CancelRequested, Event, MessageReceived
from hanse.model.ids import SECOND, JobId, TaskId
from hanse.model.job import JobSpec
from hanse.model.messages import Outcome, ReplicateJobs, ReplicaUpdate
from tests.core.test_bounded_work import settled_by
from tests.core.wired import Wired, job, node, tasks

MILLION = 1_000_000
MANY = 40
"""Tasks that are many for ``Sliced``."""


class Weighed(Wired):
    """Looks at the size of every record that a journal would get, and at how much each event settles."""

    def __init__(self, *args: object, **rest: object) -> None:
        self.largest, self.most_settled = 0, 0
        super().__init__(*args, **rest)  # type: ignore[arg-type]

    def give(self, name: str, event: Event) -> list[Effect]:
        if isinstance(event, MessageReceived) and isinstance(
            event.envelope.body, ReplicaUpdate | ReplicateJobs
        ):
            self.largest = max(self.largest, len(msgspec.msgpack.encode(event)))
        commands = super().give(name, event)
        self.most_settled = max(self.most_settled, sum(map(settled_by, commands)))
        self.said.clear()
        return commands


class Sliced(Wired):
    """A league in which three tasks are a slice."""

    slice_tasks = 3


class Whole(Wired):
    """A league in which every job is ended at once."""

    slice_tasks = 1 << 20


def league(kind: type[Wired] = Sliced, brokers: int = 3, **rest: object) -> Wired:
    names = tuple(f"b{number + 1}" for number in range(brokers))
    return kind({"c1": (node(4_000),), "c2": (node(4_000),)}, names, **rest)  # type: ignore[arg-type]


# --- a million tasks ----------------------------------------------------------------------------------------


def test_no_record_of_a_cancelled_job_of_a_million_tasks_is_too_large() -> None:
    one = Weighed({"c1": (node(4_000),)}, ("b1", "b2", "b3"))
    large = one.submit(job(tasks(MILLION)))
    one.cancel(large)
    one.run(2 * SECOND)
    assert large not in one.over, "it takes many slices"
    other = one.submit(job(tasks(1)))
    assert one.running(other), "somebody else's job goes on meanwhile"
    one.deaf["b2"] = True  # its heir: everything goes to another one, half done
    one.run(30 * SECOND)
    assert one.over[large] is Outcome.CANCELLED
    assert len(one.settled) == MILLION
    assert one.most_settled <= ENTRIES_MAX
    assert one.largest <= RECORD_BYTES_MAX // 16
    one.check()


def test_an_heir_takes_a_half_cancelled_job_of_a_million_tasks() -> None:
    one = Weighed({"c1": (node(4_000),)}, ("b1", "b2", "b3"))
    large = one.submit(job(tasks(MILLION)))
    one.cancel(large)
    one.run(SECOND)
    before = len(one.settled)
    assert 0 < before < MILLION
    one.deaf["b1"] = True
    one.run(60 * SECOND)
    assert one.marks("b2")["broker.adopted_estate"] == 1
    assert one.over[large] is Outcome.CANCELLED
    assert len(one.settled) == MILLION
    assert one.most_settled <= ENTRIES_MAX
    assert one.largest <= RECORD_BYTES_MAX // 16
    one.boot("b1")
    one.run(60 * SECOND)
    one.check_idle()


# --- slices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placed", [0, 2, 8], ids=["none placed", "some placed", "all placed"])
def test_a_broker_starts_again_at_every_step_of_a_cancelled_job(placed: int) -> None:
    """Tasks that wait are a whole number of slices, or none at all: what is marked is what is left."""
    one = league()
    if placed < 8:
        one.submit(job(tasks(8 - placed)))  # takes the room that the other job does not get
    number = one.submit(job(tasks(placed + (0 if placed == 8 else 6))))
    assert len(one.running(number)) == placed
    one.stubborn = True
    one.requests += 1
    one.give("b1", CancelRequested(one.now, "me", one.requests, number))
    for _ in range(10):
        one.machines["b1"].check()
        one.restart("b1")
        one.machines["b1"].check()
        one.run(SLICE_PAUSE // 2)
    one.stubborn = False
    for task, attempt in sorted(one.live):
        one.exit(task, attempt, Outcome.SUCCEEDED)
    one.run(20 * SECOND)
    one.check_idle()
    assert number in one.over


SPECS = st.lists(
    st.tuples(st.integers(1, 12), st.booleans(), st.integers(500, 2_000)), min_size=1, max_size=4
)


def chain(parts: list[tuple[int, bool, int]]) -> JobSpec:
    """Groups of so many tasks, each of which needs the one before it or does not."""
    groups = [
        tasks(count, cpu, name=f"g{at}", needs=(f"g{at - 1}",) if needs and at else ())
        for at, (count, needs, cpu) in enumerate(parts)
    ]
    return job(*groups)


def story(kind: type[Wired], parts: list[tuple[int, bool, int]], seed: int) -> dict[TaskId, Outcome]:
    """A job some of whose tasks end, which is cancelled; how its tasks ended."""
    one, rng = league(kind), Random(seed)
    number = one.submit(chain(parts))
    for task, attempt in sorted(one.live):
        fate = rng.random()
        if fate < 0.5:
            outcome = Outcome.SUCCEEDED if fate < 0.4 else Outcome.FAILED
            one.exit(task, attempt, outcome)
    one.run(SECOND)
    if number not in one.over:
        one.cancel(number)
    one.run(20 * SECOND)
    one.check_idle()
    ends = {task: outcome for task, (_, outcome) in one.settled.items()}
    assert len(ends) == sum(count for count, _, _ in parts)
    return {**ends, TaskId(0): one.over[number]}


@settings(max_examples=40, deadline=None)
@given(SPECS, st.integers(0, 1_000))
def test_a_job_that_is_ended_in_slices_ends_as_one_that_is_ended_at_once(
    parts: list[tuple[int, bool, int]], seed: int
) -> None:
    assert story(Sliced, parts, seed) == story(Whole, parts, seed)


def begun(one: Wired, spec: JobSpec | None = None) -> JobId:
    """A job that is being cancelled: what has not ended yet waits for further slices."""
    number = one.submit(spec or job(tasks(MANY)))
    one.requests += 1
    one.give("b1", CancelRequested(one.now, "me", one.requests, number))
    one.run(2 * SLICE_PAUSE)
    assert number not in one.over
    return number


def finished(one: Wired, number: JobId) -> None:
    assert one.over[number] is Outcome.CANCELLED
    ends = [one.outcome(number, index) for index in range(MANY)]
    assert ends == [Outcome.CANCELLED] * MANY


def test_a_broker_that_restarts_in_the_middle_goes_on_where_it_was() -> None:
    one = league()
    number = begun(one)
    one.restart("b1")
    one.check()
    one.run(20 * SECOND)
    finished(one, number)
    one.check_idle()


def test_an_heir_finishes_what_its_peer_had_begun_to_cancel() -> None:
    one = league()
    number = begun(one)
    one.run(SECOND // 10)  # the heir hears of some
    one.deaf["b1"] = True
    one.run(60 * SECOND)
    finished(one, number)
    assert not one.running(number)
    one.boot("b1")
    one.run(60 * SECOND)
    one.check_idle()


def test_a_job_that_comes_after_one_that_failed_is_cancelled_and_never_queued() -> None:
    one = league()
    first = one.submit(job(tasks(1)))
    one.end(first, outcome=Outcome.FAILED, code=1)
    assert one.over[first] is Outcome.FAILED
    number = one.submit(job(tasks(MANY), after=(first,)))
    one.run(5 * SECOND)
    finished(one, number)
    assert not any(task >> 20 == number for task, _ in one.runner_of)
    one.check_idle()


def test_an_heir_also_finishes_a_job_whose_deadline_has_passed() -> None:
    one = league()
    number = one.submit(job(tasks(MANY), deadline=2 * SECOND))
    one.run(SECOND + SECOND // 10)
    assert number not in one.over
    launched = len(one.runner_of)
    one.deaf["b1"] = True
    one.run(60 * SECOND)
    finished(one, number)
    assert len(one.runner_of) == launched, "nothing of it was started again"


def test_nothing_more_ends_while_the_heir_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanse.core.broker.failover.end_log.UNPUBLISHED_MAX", 6)
    one = league(brokers=2)
    number = one.submit(job(tasks(MANY)))
    one.loses = lambda envelope: isinstance(envelope.body, ReplicaUpdate)
    one.cancel(number)
    assert not one.settled
    broker = one.machines["b1"]
    owned = broker._replication.state.owned["b1#1"]  # type: ignore[attr-defined]
    assert len(owned.publishing) <= 6 + 3 + 8, "one slice beyond, and what ran"
    one.loses = lambda _: False
    one.run(60 * SECOND)
    finished(one, number)


def test_a_new_heir_does_not_bid_with_a_copy_that_lacks_ends() -> None:
    """What follows a copy gets lost with its sender: nobody may run again what was made known as ended."""
    one = Wired({"c1": (node(4_000),)}, ("b1", "b2", "b3"))
    number = one.submit(job(tasks(2 * INLINE_MAX, 10)))
    one.end(number, *range(INLINE_MAX + 50))
    assert len(one.settled) == INLINE_MAX + 50
    one.deaf["b2"] = True  # the heir is gone: the copies go to the next one
    one.loses = lambda envelope: envelope.target == "b3" and isinstance(envelope.body, ReplicaUpdate)
    one.run(10 * SECOND)
    one.deaf["b1"] = True
    one.loses = lambda _: False
    one.run(60 * SECOND)
    assert not one.marks("b3").get("broker.adoption_begun")
    one.boot("b1")
    one.end(number)
    one.run(20 * SECOND)
    one.end(number)
    assert one.over[number] is Outcome.SUCCEEDED


def test_adoption_after_adoption_makes_known_the_ends_of_every_job_in_turn() -> None:
    """Several jobs of one estate, each with ends that the dead owner had not made known."""
    one = league(Wired)
    jobs = [one.submit(job(tasks(6, 500))) for _ in range(3)]
    one.loses = lambda envelope: envelope.source == "b1" and isinstance(envelope.body, ReplicaUpdate)
    for number in jobs:
        one.end(number, 0, 1)
    one.deaf["b1"] = True
    one.loses = lambda _: False
    one.run(60 * SECOND)
    for number in jobs:
        one.end(number)
    one.run(20 * SECOND)
    assert all(one.over.get(number) is Outcome.SUCCEEDED for number in jobs), one.over
    assert len(one.settled) == 18


# --- runs ---------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.sampled_from((BLOCKED, WAITING, SUCCEEDED, FAILED, CANCELLED)),
                  st.sampled_from((0, 1, 2, 300)), st.integers(0, 1), st.integers(1, RUN_COMPARE_TASKS)),
        max_size=12,
    )
)  # fmt: skip
def test_runs_say_what_the_columns_say(parts: list[tuple[int, int, int, int]]) -> None:
    states, attempts, ran = bytearray(), list[int](), bytearray()
    for state, attempt, one, count in parts:
        states += bytes((state,)) * count
        attempts += [attempt] * count
        ran += bytes((one,)) * count
    expected = [
        (index, state, attempts[index] if ran[index] else 0)
        for index, state in enumerate(states)
        if state >= SUCCEEDED
    ]
    runs = list(find_end_runs(states, attempts, ran))
    told = [(first + at, state, attempt) for first, state, attempt, count in runs for at in range(count)]
    assert told == expected
    assert all(count > 0 for _, _, _, count in runs)
    known = new_task_ends(len(states))
    for run in runs:
        known.add_run(*run)
    assert known.count == len(expected)
    assert list(known.runs()) == runs
    singly: TaskEnds = new_task_ends(len(states))
    for entry in expected:
        singly.add(*entry)
    assert singly == known


@given(st.binary(max_size=200), st.integers(0, 50))
def test_tasks_are_found_by_index(column: bytes, most: int) -> None:
    states = bytearray(value % 8 for value in column)
    expected = [index for index, state in enumerate(states) if state in (BLOCKED, WAITING)][:most]
    assert find_tasks(states, (BLOCKED, WAITING), most) == expected


def test_ends_beyond_a_jobs_tasks_are_not_noted() -> None:
    known = new_task_ends(3)
    known.add(3, SUCCEEDED, 1)
    known.add_run(2, SUCCEEDED, 1, 5)
    known.add_run(7, SUCCEEDED, 1, 5)
    assert known == TaskEnds(bytearray((0, 0, SUCCEEDED)), [0, 0, 1], 1)
