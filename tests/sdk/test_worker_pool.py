"""Who gets which call: the crew alone, without sockets, under whatever order of events."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hanse.sdk.function_pickling import RemoteFunction
from hanse.sdk.future import Future, estimate_eta
from hanse.sdk.serialization import NO_ARGUMENTS
from hanse.sdk.workers.autoscaler import NO_ROOM_SECONDS, START_FAILURES_MAX, Autoscaler
from hanse.sdk.workers.provisioner import WorkerExit, WorkerJob, WorkerRefusal
from hanse.sdk.workers.worker_pool import (
    CREDIT_FIRST,
    CREDIT_MAX,
    STALE_SECONDS,
    PooledWorker,
    RemoteCall,
    WorkerPool,
)


def call(number: int, retries: int = 1) -> RemoteCall:
    future: Future[Any] = Future()
    future._call_number = number
    return RemoteCall(number, RemoteFunction(1, abs, "builtins:abs"), NO_ARGUMENTS, future, retries)


def hand(crew: WorkerPool, index: int, now: float = 0.0) -> PooledWorker:
    member = PooledWorker("1-0", index, 1, "north", None, now)
    crew.workers.append(member)
    return member


def test_calls_are_shared_and_sent_ahead_only_as_far_as_credit_goes() -> None:
    crew = WorkerPool()
    hands = [hand(crew, index) for index in range(3)]
    for number in range(5):
        crew.add_call(call(number))
    given = crew.assign(0.0)
    assert [(member.index, len(calls)) for member, calls in given] == [(0, 2), (1, 2), (2, 1)]
    for number in range(5, 100):
        crew.add_call(call(number))
    crew.assign(0.0)
    assert [len(member.outstanding) for member in hands] == [CREDIT_FIRST] * 3
    assert crew.pending_count() == 100


def test_credit_follows_the_time_that_calls_take() -> None:
    member = hand(WorkerPool(), 0)
    for seconds, credit in ((1e-6, CREDIT_MAX), (1.0, 1)):
        for _ in range(40):
            member.on_calls_finished(1, seconds, 0, 0.0)
        assert member.credit == credit
    for _ in range(60):
        member.on_calls_finished(1, 1e-5, 10 << 20, 0.0)
    assert member.credit == 3  # large results: so many that their sizes together stay within bounds


def test_an_idle_hand_gets_calls_from_behind_a_long_one() -> None:
    crew = WorkerPool()
    slow, idle = hand(crew, 0), hand(crew, 1)
    idle.closing = True  # not there yet
    for number in range(4):
        crew.add_call(call(number))
    crew.assign(0.0)
    idle.closing = False
    asked, again = crew.find_recalls(0.0)
    assert asked == []
    assert again == pytest.approx(STALE_SECONDS)
    asked, again = crew.find_recalls(STALE_SECONDS)
    assert asked == [(slow, 3)]
    assert again is None
    assert crew.find_recalls(1.0) == ([], None)  # asked once
    assert crew.on_returned(slow, (2, 3, 99)) == []
    assert [len(calls) for _, calls in crew.assign(1.0)] == [2]
    assert sorted(idle.outstanding) == [2, 3]
    assert sorted(slow.outstanding) == [0, 1]


def test_only_the_call_that_was_alone_pays_for_a_lost_hand() -> None:
    crew = WorkerPool()
    first = hand(crew, 0)
    calls = [call(number) for number in range(3)]
    for one in calls:
        crew.add_call(one)
    crew.assign(0.0)
    assert crew.on_worker_lost(first) == []
    assert [one.retries for one in calls] == [1, 1, 1]
    for expected in ([], [calls[0]]):
        member = hand(crew, 1)
        assert [[one.number for one in some] for _, some in crew.assign(0.0)] == [[0]]  # by itself
        assert crew.on_worker_lost(member) == expected
    assert [one.number for one in crew.waiting_calls()] == [1, 2]


def test_a_call_without_retries_is_sent_by_itself_and_not_again() -> None:
    crew = WorkerPool()
    member = hand(crew, 0)
    only = call(1, retries=0)
    crew.add_call(only)
    crew.add_call(call(2))
    assert [[one.number for one in some] for _, some in crew.assign(0.0)] == [[1]]
    assert crew.assign(0.0) == []
    assert crew.on_worker_lost(member) == [only]


def test_cancelled_calls_are_passed_over() -> None:
    crew = WorkerPool()
    hand(crew, 0)
    calls = [call(number) for number in range(3)]
    for one in calls:
        crew.add_call(one)
    assert calls[0].future.cancel()
    ((member, given),) = crew.assign(0.0)
    assert [one.number for one in given] == [1, 2]
    assert calls[0].future.cancelled()
    calls[2].cancelled = True
    (back,) = crew.on_returned(member, (2,))
    assert back is calls[2]
    back.future._set_cancelled()
    assert back.future.cancelled()


class CrewMachine(RuleBasedStateMachine):
    """Every call ends exactly once: made, given up or cancelled; none is with two workers."""

    @initialize()
    def begin(self) -> None:
        self.crew = WorkerPool()
        self.calls: dict[int, RemoteCall] = {}
        self.ended: dict[int, str] = {}
        self.now = 0.0
        self.hands = 0

    @rule(count=st.integers(1, 30), retries=st.integers(0, 2))
    def submit(self, count: int, retries: int) -> None:
        for _ in range(count):
            number = len(self.calls)
            self.calls[number] = call(number, retries)
            self.crew.add_call(self.calls[number])

    @rule()
    def come(self) -> None:
        self.hands += 1
        hand(self.crew, self.hands, self.now)

    @rule()
    def turn(self) -> None:
        self.now += 0.003
        for member, calls in self.crew.assign(self.now):
            assert calls
            assert all(member.outstanding[one.number] is one for one in calls)
            if any(one.alone for one in member.outstanding.values()):
                assert len(member.outstanding) == 1
        self.crew.find_recalls(self.now)

    @precondition(lambda self: any(member.outstanding for member in self.crew.workers))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from([one for one in self.crew.workers if one.outstanding]))
        count = data.draw(st.integers(1, len(member.outstanding)))
        for number in list(member.outstanding)[:count]:
            del member.outstanding[number]
            self.end(number, "made")
        member.on_calls_finished(count, count * data.draw(st.floats(1e-6, 0.2)), 0, self.now)

    @precondition(lambda self: any(member.recalling for member in self.crew.workers))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from([one for one in self.crew.workers if one.recalling]))
        count = data.draw(st.integers(0, len(member.outstanding)))
        numbers = tuple(list(member.outstanding)[len(member.outstanding) - count :])
        for one in self.crew.on_returned(member, numbers):
            self.end(one.number, "cancelled")
        assert not member.recalling

    @precondition(lambda self: self.crew.workers)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        for one in self.crew.on_worker_lost(data.draw(st.sampled_from(self.crew.workers))):
            assert one.retries < 0
            self.end(one.number, "given up")

    def end(self, number: int, how: str) -> None:
        assert number not in self.ended, f"call {number} was {self.ended[number]} and is {how}"
        self.ended[number] = how

    @invariant()
    def every_call_is_in_one_place(self) -> None:
        if not hasattr(self, "crew"):
            return
        places = [one.number for one in self.crew.waiting_calls()]
        for member in self.crew.workers:
            places += member.outstanding
        assert sorted([*places, *self.ended]) == sorted(self.calls)


TestCrew = CrewMachine.TestCase
TestCrew.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# --- number of workers -------------------------------------------------------------------------------------


def test_hands_are_asked_for_as_work_waits_and_not_beyond_the_most() -> None:
    muster, crew = Autoscaler(0, 4, 60.0), WorkerPool()
    assert muster.workers_to_request(crew, 0.0) == 0
    crew.add_call(call(0))
    assert muster.workers_to_request(crew, 0.0) == 1
    for number in range(1, 100):
        crew.add_call(call(number))
    assert muster.workers_to_request(crew, 0.0) == 4
    muster.request_pending = True
    assert muster.workers_to_request(crew, 0.0) == 0
    muster.on_worker_job(WorkerJob("1-0", 3), 0.0)
    assert muster.starting_count() == 3
    assert muster.workers_to_request(crew, 0.0) == 1


def test_short_work_needs_no_further_hand() -> None:
    muster, crew = Autoscaler(0, None, 60.0), WorkerPool()
    member = hand(crew, 0)
    member.on_calls_finished(1, 1e-5, 0, 0.0)
    for number in range(1_000):
        crew.add_call(call(number))
    assert muster.workers_to_request(crew, 0.0) == 0
    member.mean = 0.1
    assert muster.workers_to_request(crew, 0.0) == 200


def test_a_hand_that_comes_before_its_job_is_known_is_counted_once() -> None:
    muster = Autoscaler(2, 2, 60.0)
    muster.request_pending = True
    muster.on_worker_connected("1-0", 1)
    muster.on_worker_job(WorkerJob("1-0", 2), 0.0)
    assert muster.starting_count() == 1
    muster.on_worker_connected("1-0", 0)
    assert muster.starting_count() == 0


def test_hands_that_do_not_come_to_life_are_looked_for_and_given_up() -> None:
    muster, crew = Autoscaler(0, 1, 60.0), WorkerPool()
    crew.add_call(call(0))
    now = 0.0
    for number in range(START_FAILURES_MAX):
        muster.on_worker_job(WorkerJob(f"1-{number}", 1), now)
        assert muster.find_due_checks(now) == []
        now = muster.next_action_at(crew, now) or 0.0
        ((job, indices),) = muster.find_due_checks(now)
        assert indices == {0}
        assert muster.find_due_checks(now) == []
        reason = muster.on_checked(job, [(0, WorkerExit(f"{job}.0", "failed", 1, "", "no such module"))], now)
        assert bool(reason) == (number == START_FAILURES_MAX - 1)
    assert "exit code 1" in reason
    assert "no such module" in reason
    assert muster.workers_to_request(crew, now) == 0
    assert muster.workers_to_request(crew, now + NO_ROOM_SECONDS) == 1


def test_a_lasting_refusal_is_the_last_word() -> None:
    muster, crew = Autoscaler(0, None, 60.0), WorkerPool()
    crew.add_call(call(0))
    assert muster.on_refusal(WorkerRefusal("no room ever", lasting=True), 0.0) == "no room ever"
    assert muster.workers_to_request(crew, 1e9) == 0
    other = Autoscaler(0, None, 60.0)
    other.on_refusal(WorkerRefusal("nobody answers", lasting=False), 0.0)
    assert other.workers_to_request(crew, 1e9) == 1


def test_idle_hands_go_but_not_below_the_least() -> None:
    muster, crew = Autoscaler(1, 4, 10.0), WorkerPool()
    for index in range(3):
        hand(crew, index, float(index))
    assert muster.next_action_at(crew, 0.0) == 10.0
    assert muster.find_idle(crew, 9.0) == []
    assert [member.index for member in muster.find_idle(crew, 11.0)] == [0, 1]
    assert [member.index for member in muster.find_idle(crew, 99.0)] == [0, 1]
    for member in crew.workers[:2]:
        member.closing = True
    assert muster.find_idle(crew, 99.0) == []
    assert muster.next_action_at(crew, 99.0) is None


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=64), st.floats(0, 1e3))
def test_expected_ends_are_in_order(seconds: list[float], ahead: float) -> None:
    eta = estimate_eta(ahead, seconds)
    assert eta.p10 is not None
    assert eta.p50 is not None
    assert eta.p90 is not None
    assert 0 < eta.p10 <= eta.p50 <= eta.p90 <= ahead * max(seconds) * (1 + 1e-9) + max(seconds)
    assert estimate_eta(1.0, []).unknown
