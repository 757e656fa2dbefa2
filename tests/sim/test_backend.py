from random import Random

import msgspec
import pytest

from hanse.model.effects import ForgetAttempt, KillAttempt, LaunchAttempt
from hanse.model.events import BackendReported, Event, TasksChanged
from hanse.model.ids import TaskId
from hanse.model.messages import Outcome
from hanse.sim.backend import PlannedEnd, SimulatedAttempt, SimulatedBackend
from hanse.sim.network import SimulatedNetwork
from hanse.sim.process_clock import MILLION, ProcessClock
from hanse.sim.runner_process import RunnerProcess
from hanse.sim.world import VirtualWorld
from tests.sim.toys import Hand, guard, launch

TRUE_TIME = ProcessClock()


class Ledger:
    def __init__(self) -> None:
        self.log: list[tuple[str, int, int]] = []

    def on_launched(self, cluster: str, runner: str, attempt: SimulatedAttempt) -> None:  # noqa: ARG002
        self.log.append(("launched", attempt.task, attempt.attempt))

    def on_ended(self, cluster: str, attempt: SimulatedAttempt, outcome: Outcome) -> None:  # noqa: ARG002
        self.log.append((outcome.value, attempt.task, attempt.attempt))


class Bench:
    def __init__(
        self, fate: PlannedEnd = (2 * MILLION, Outcome.SUCCEEDED, 0), clock: ProcessClock = TRUE_TIME,
        poll_interval: int = 0,
    ) -> None:  # fmt: skip
        self.world = VirtualWorld()
        network = SimulatedNetwork(self.world, Random(1))
        self.runner = RunnerProcess("hand", 1, Hand, network, Random(2), clock)
        self.truth = Ledger()
        self.fate = fate
        self.backend = SimulatedBackend(
            self.runner, "alpha", self._fate, self.truth, Random(3), poll_interval
        )
        self.runner.restart()

    def _fate(self, _: LaunchAttempt) -> PlannedEnd:
        return self.fate

    def heard(self) -> list[Event]:
        machine = self.runner.machine
        assert isinstance(machine, Hand)
        return machine.heard

    def changes(self) -> list[TasksChanged]:
        """The starts and ends that the runner heard of."""
        return [event for event in self.heard() if isinstance(event, TasksChanged)]

    def changes_by_kind(self) -> list[tuple[int, int]]:
        """Numbers of starts and ends in each."""
        return [(len(event.started), len(event.ended)) for event in self.changes()]


def test_an_attempt_starts_and_ends_by_itself() -> None:
    bench = Bench((2 * MILLION, Outcome.FAILED, 7))
    bench.backend.launch(launch(5))
    bench.world.run(3 * MILLION)
    started, ended = bench.changes()
    assert started.started == ((5, 1),)
    (end,) = ended.ended
    assert (end.task, end.attempt, end.outcome, end.exit_code) == (5, 1, "failed", 7)
    assert bench.backend.report().ended == (end,)
    bench.backend.forget(ForgetAttempt(TaskId(5), 1))
    assert bench.backend.report().ended == ()


@pytest.mark.parametrize("duration", [1, 3_000, 4_999])
def test_a_runner_never_hears_of_the_end_before_the_start(duration: int) -> None:
    for task in range(50):
        bench = Bench((duration, Outcome.SUCCEEDED, 0))
        bench.backend.launch(launch(task))
        bench.world.run(MILLION)
        assert bench.changes_by_kind() == [(1, 0), (0, 1)]


def test_what_is_told_at_one_time_is_one_event() -> None:
    bench = Bench((2 * MILLION, Outcome.SUCCEEDED, 0))
    bench.backend.notice_max = 0
    for task in (5, 6, 7):
        bench.backend.launch(launch(task))
    bench.world.run(3 * MILLION)
    assert bench.changes_by_kind() == [(3, 0), (0, 3)]
    assert bench.changes()[0].started == ((5, 1), (6, 1), (7, 1))


def test_a_backend_that_polls_tells_all_of_an_interval_at_once() -> None:
    bench = Bench((1_000, Outcome.SUCCEEDED, 0), poll_interval=100_000)
    for task in range(1, 9):
        bench.backend.launch(launch(task))
        bench.world.run(task * 50_000)
    bench.world.run(MILLION)
    assert bench.changes_by_kind() == [(2, 2)] * 4  # each of them starts and ends in one event
    assert [event.at for event in bench.changes()] == [100_000, 200_000, 300_000, 400_000]


def test_a_paused_runner_hears_of_everything_in_one_event() -> None:
    bench = Bench((10_000, Outcome.SUCCEEDED, 0))
    bench.backend.launch(launch(5))
    bench.backend.launch(launch(6))
    bench.runner.pause()
    bench.world.run(60_000)
    bench.runner.resume()
    bench.world.run(MILLION)
    assert bench.changes_by_kind() == [(2, 2)]


def test_a_crash_forgets_what_was_told_and_not_handled() -> None:
    bench = Bench((100 * MILLION, Outcome.SUCCEEDED, 0))
    bench.backend.notice_max = 0
    bench.backend.launch(launch(5))
    bench.world.call_at(0, lambda _: bench.runner.crash())  # behind the notice, before its event
    bench.world.run(0)
    bench.runner.restart()
    bench.world.run(MILLION)
    assert bench.changes() == []
    report = bench.heard()[-1]
    assert isinstance(report, BackendReported)
    assert [task for task, *_ in report.running] == [5]


def test_the_watchdog_ends_everything_at_the_local_time_unless_told_later() -> None:
    clock = ProcessClock(500 * MILLION, MILLION - 20_000)
    bench = Bench((100 * MILLION, Outcome.SUCCEEDED, 0), clock)
    bench.backend.extend_watchdog(guard(clock.local_time(0) + MILLION))
    bench.backend.launch(launch(5))
    bench.backend.extend_watchdog(guard(clock.local_time(0) + 5 * MILLION))
    expiry = clock.true_time(clock.local_time(0) + 5 * MILLION)
    bench.world.run(expiry - 1)
    assert bench.truth.log == [("launched", 5, 1)]
    bench.world.run(expiry)
    assert bench.truth.log[-1] == ("lost", 5, 1)


@pytest.mark.parametrize("state", ["dead", "paused"])
def test_the_watchdog_works_without_its_runner(state: str) -> None:
    bench = Bench((100 * MILLION, Outcome.SUCCEEDED, 0))
    bench.backend.extend_watchdog(guard(5 * MILLION))
    bench.backend.launch(launch(5))
    if state == "dead":
        bench.runner.crash()
    else:
        bench.runner.pause()
    bench.world.run(5 * MILLION)
    assert bench.truth.log[-1] == ("lost", 5, 1)


def test_launching_after_the_lease_ends_at_once() -> None:
    bench = Bench()
    bench.backend.extend_watchdog(guard(MILLION))
    bench.world.run(2 * MILLION)
    bench.backend.launch(launch(5))
    assert bench.truth.log[-1] == ("lost", 5, 1)


def test_a_kill_takes_effect_within_its_grace() -> None:
    bench = Bench((100 * MILLION, Outcome.SUCCEEDED, 0))
    bench.backend.launch(launch(5))
    bench.world.run(MILLION)
    bench.backend.kill(KillAttempt(TaskId(5), 1, MILLION))
    assert bench.truth.log[-1] == ("launched", 5, 1)
    bench.world.run(2 * MILLION + 10_000)
    assert bench.truth.log[-1] == ("cancelled", 5, 1)
    assert [end.exit_code for end in bench.changes()[-1].ended] == [-15]


def test_a_task_may_end_by_itself_before_the_kill_does() -> None:
    bench = Bench((MILLION, Outcome.SUCCEEDED, 0))
    bench.backend.launch(launch(5))
    bench.backend.kill(KillAttempt(TaskId(5), 1, 400 * MILLION))
    bench.world.run(500 * MILLION)
    assert [what for what, _, _ in bench.truth.log] == ["launched", "succeeded"]


def test_tasks_outlive_their_runner_and_ends_are_remembered() -> None:
    bench = Bench()
    bench.backend.launch(launch(5))
    bench.world.run(MILLION)
    bench.fate = (100 * MILLION, Outcome.SUCCEEDED, 0)
    bench.backend.launch(launch(6))
    bench.runner.crash()
    bench.world.run(3 * MILLION)
    bench.runner.restart()
    report = bench.heard()[-1]
    assert isinstance(report, BackendReported)
    assert report.running == ((6, 1, "b1#1", True),)
    assert [(end.task, end.outcome) for end in report.ended] == [(5, "succeeded")]


def test_a_burnt_host_remembers_nothing() -> None:
    bench = Bench((MILLION, Outcome.SUCCEEDED, 0))
    bench.backend.launch(launch(5))
    bench.world.run(2 * MILLION)
    bench.backend.launch(launch(6))
    bench.backend.extend_watchdog(guard(3 * MILLION))
    bench.backend.lose_host()
    assert bench.truth.log[-1] == ("lost", 6, 1)
    bench.world.run(4 * MILLION)
    bench.runner.restart()
    report = bench.heard()[-1]
    assert isinstance(report, BackendReported)
    assert (report.running, report.ended) == ((), ())


# --- an output that hangs ----------------------------------------------------------------------------------


def test_nothing_is_told_while_the_output_hangs_and_all_of_it_then() -> None:
    bench = Bench((MILLION, Outcome.SUCCEEDED, 0))
    bench.backend.hang_output()
    bench.backend.launch(launch(5))
    bench.world.run(MILLION)
    assert bench.truth.log == []
    bench.backend.resume_output()
    bench.backend.hang_output()
    bench.world.run(3 * MILLION)
    assert bench.truth.log == [("launched", 5, 1), ("succeeded", 5, 1)]  # which nobody hears
    assert len(bench.heard()) == 2
    bench.backend.resume_output()
    bench.world.run(3 * MILLION)
    assert bench.changes_by_kind() == [(1, 1)]


def test_an_attempt_is_not_stopped_while_the_output_hangs_but_its_watchdog_ends_it() -> None:
    bench = Bench((100 * MILLION, Outcome.SUCCEEDED, 0))
    bench.backend.extend_watchdog(guard(5 * MILLION))
    bench.backend.launch(launch(5))
    bench.backend.launch(launch(6))
    bench.backend.kill(KillAttempt(TaskId(6), 1, MILLION))
    bench.backend.hang_output()
    bench.backend.kill(KillAttempt(TaskId(5), 1, 0))
    bench.world.run(5 * MILLION - 1)
    assert bench.truth.log == [("launched", 5, 1), ("launched", 6, 1)]
    bench.world.run(5 * MILLION)
    assert bench.truth.log[2:] == [("lost", 5, 1), ("lost", 6, 1)]
    bench.world.run(6 * MILLION)
    assert len(bench.heard()) == 2
    bench.backend.resume_output()
    bench.world.run(6 * MILLION)
    assert [end.outcome for event in bench.changes() for end in event.ended] == ["lost", "lost"]


@pytest.mark.parametrize("late", [False, True])
def test_an_order_that_was_held_up_is_carried_out_only_while_it_is_good(late: bool) -> None:
    bench = Bench((100 * MILLION, Outcome.SUCCEEDED, 0))
    bench.backend.hang_output()
    bench.backend.launch(msgspec.structs.replace(launch(5), until=2 * MILLION))
    bench.world.run(2 * MILLION if late else 2 * MILLION - 1)
    bench.backend.extend_watchdog(guard(50 * MILLION))
    bench.backend.resume_output()
    bench.world.run(3 * MILLION)
    (change,) = bench.changes()
    if late:
        assert bench.truth.log == []
        assert [end.outcome for end in change.ended] == [Outcome.UNSTARTED]
        assert bench.backend.report().ended == change.ended
    else:
        assert bench.truth.log == [("launched", 5, 1)]
        assert change.started == ((5, 1),)


@pytest.mark.parametrize("state", ["up", "paused", "down"])
def test_a_runner_that_starts_while_the_output_hangs_learns_what_is_there_later(state: str) -> None:
    bench = Bench((100 * MILLION, Outcome.SUCCEEDED, 0))
    bench.backend.launch(launch(5))
    bench.world.run(MILLION)
    bench.backend.hang_output()
    bench.runner.crash()
    bench.runner.restart()
    assert not any(isinstance(event, BackendReported) for event in bench.heard())
    if state == "paused":
        bench.runner.pause()
    elif state == "down":
        bench.runner.crash()
    bench.backend.resume_output()
    bench.runner.resume()
    bench.runner.restart()
    (report,) = [event for event in bench.heard() if isinstance(event, BackendReported)]
    assert [task for task, *_ in report.running] == [5]


def test_a_host_that_dies_takes_what_was_held_up_with_it() -> None:
    bench = Bench()
    bench.backend.hang_output()
    bench.backend.launch(launch(5))
    bench.backend.lose_host()
    bench.backend.resume_output()
    bench.world.run(MILLION)
    assert not bench.backend.is_output_hanging
    assert bench.truth.log == []
