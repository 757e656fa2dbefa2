"""Starts that hang in Slurm are taken back: held, sent to a node that does not answer, or never begun."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from hanse.core.config import NodeConfig
from hanse.live.backends.process.launch_requests import TaskUser
from hanse.live.backends.slurm.attempt_store import (
    NO_PROGRAM,
    AttemptStore,
    EndReason,
    SlurmAttempt,
    SubmitPhase,
)
from hanse.live.backends.slurm.attempt_tracker import AttemptTracker
from hanse.live.backends.slurm.capacity import NODE_ATTRIBUTE, SlurmCapacity
from hanse.live.backends.slurm.driver import (
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmSubmission,
    clean_reason,
)
from hanse.live.backends.slurm.fs_thread import FsThread, report_failure
from hanse.live.backends.slurm.job_names import AttemptId
from hanse.live.backends.slurm.poller import PollResult, SlurmPoller
from hanse.live.backends.slurm.reconciler import LINGER_MICROSECONDS, SlurmReconciler
from hanse.live.backends.slurm.shared_directory import SharedDirectory
from hanse.live.backends.slurm.stalled_starts import (
    BARRED_DOUBLINGS_MAX,
    SCRIPT_DELAY_MICROSECONDS,
    find_stall,
)
from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd, Outcome
from hanse.model.resources import Resources
from tests.live.backends.desk import HOUR, SECOND, WAIT_SECONDS_MAX, Desk, launch, now, task, with_desk
from tests.live.backends.places import shell
from tests.live.backends.slurm.fixture import NODE_CPUS, NODE_MEMORY_MIB, Slurm, missing, slurm_clusters
from tests.live.backends.slurm.places import Log, backend_on, our_names, until
from tests.live.harness import open_directory

DRIVERS = pytest.mark.parametrize("driver", ["cli", "rest"])
BEGIN_MAX = 60 * SECOND


def nodes_of(slurm: Slurm) -> tuple[NodeConfig, ...]:
    whole = Resources(NODE_CPUS * 1_000, NODE_MEMORY_MIB << 20)
    return tuple(NodeConfig(whole, ((NODE_ATTRIBUTE, name),)) for name in slurm.nodes)


def test_a_part_that_fails_ends_the_daemon_whatever_it_raised() -> None:
    """The daemon stops for an assertion; for a RuntimeError it would go on, with nobody to look at Slurm."""
    heard: list[BaseException | None] = []

    async def part() -> None:
        raise RuntimeError("the handler is closed")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: heard.append(context["exception"]))
        task = asyncio.create_task(part())
        task.add_done_callback(report_failure)
        await asyncio.wait([task])
        await asyncio.sleep(0)

    asyncio.run(story())
    assert [(type(error), str(error)) for error in heard] == [
        (AssertionError, "a part of the Slurm backend failed: RuntimeError('the handler is closed')")
    ]


# --- what hangs ---------------------------------------------------------------------------------------------


def job(state: str, reason: str = "") -> SlurmJob:
    return SlurmJob(1, -1, 1, "hanse:north:00:1-7.0#1", state, "", reason=reason)


@pytest.mark.parametrize(
    ("state", "reason", "closed", "limit"),
    [
        ("PENDING", "", False, None),
        ("PENDING", "Resources", False, None),
        ("PENDING", "Priority", False, None),
        ("PENDING", "PartitionDown", False, BEGIN_MAX),
        ("PENDING", "PartitionInactive", True, BEGIN_MAX),
        ("PENDING", "PartitionNodeLimit", False, BEGIN_MAX),
        ("PENDING", "PartitionTimeLimit", False, BEGIN_MAX),
        ("PENDING", "InvalidAccount", False, BEGIN_MAX),
        ("PENDING", "InvalidQOS", False, BEGIN_MAX),
        ("PENDING", "AccountNotAllowed", False, BEGIN_MAX),
        ("PENDING", "QOSNotAllowed", False, BEGIN_MAX),
        ("PENDING", "AssocMaxJobsLimit", False, BEGIN_MAX),
        ("PENDING", "AssocGrpCpuLimit", False, BEGIN_MAX),
        ("PENDING", "QOSMaxJobsPerUserLimit", False, BEGIN_MAX),
        ("PENDING", "MaxCpuPerAccount", False, BEGIN_MAX),
        ("PENDING", "Licenses", False, BEGIN_MAX),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", False, None),
        ("PENDING", "Reservation", False, None),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", True, BEGIN_MAX),
        ("PENDING", "BeginTime", False, SCRIPT_DELAY_MICROSECONDS),
        ("PENDING", "BeginTime", True, SCRIPT_DELAY_MICROSECONDS),
        ("PENDING", "JobHeldAdmin", False, SCRIPT_DELAY_MICROSECONDS),
        ("PENDING", "JobHoldMaxRequeue", False, SCRIPT_DELAY_MICROSECONDS),
        ("PENDING", "launch failed requeued held", False, SCRIPT_DELAY_MICROSECONDS),
        ("REQUEUE_HOLD", "", False, SCRIPT_DELAY_MICROSECONDS),
        ("SPECIAL_EXIT", "", False, SCRIPT_DELAY_MICROSECONDS),
        ("CONFIGURING", "", True, None),
        ("RUNNING", "", False, BEGIN_MAX),
        ("SUSPENDED", "", False, BEGIN_MAX),
        ("COMPLETING", "", False, SCRIPT_DELAY_MICROSECONDS),
        ("CANCELLED", "", False, None),
    ],
)
def test_what_hangs_and_how_long_it_may(state: str, reason: str, closed: bool, limit: int | None) -> None:
    found = find_stall([job(state, reason)], closed, BEGIN_MAX)
    assert (found and found.limit) == limit


def test_the_patience_with_a_limit_doubles_with_every_attempt_up_to_a_bound() -> None:
    """A league of one cluster must not count a task as lost too often because a limit lets few run."""
    barred = [job("PENDING", "AssocMaxJobsLimit")]
    limits = [
        found.limit for number in range(1, 51) if (found := find_stall(barred, False, BEGIN_MAX, number))
    ]
    assert limits[:3] == [BEGIN_MAX, 2 * BEGIN_MAX, 4 * BEGIN_MAX]
    assert limits[-1] == limits[BARRED_DOUBLINGS_MAX] == BEGIN_MAX << BARRED_DOUBLINGS_MAX
    closed = find_stall([job("PENDING")], True, BEGIN_MAX, 50)
    assert closed is not None
    assert closed.limit == BEGIN_MAX  # the room of a closed node is not on offer


def test_a_start_hangs_when_all_its_jobs_do() -> None:
    held, runs, waits, over = job("PENDING", "BeginTime"), job("RUNNING"), job("PENDING"), job("FAILED")
    found = find_stall([held, runs, over], False, BEGIN_MAX)
    assert found is not None
    assert found.limit == BEGIN_MAX
    assert find_stall([held, waits], False, BEGIN_MAX) is None
    assert find_stall([over], True, BEGIN_MAX) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [("None", ""), ("(null)", ""), ("launch_failed_requeued_held", "launch failed requeued held")],
)
def test_reasons_are_read_as_people_say_them(text: str, reason: str) -> None:
    assert clean_reason(text) == reason


# --- taking back --------------------------------------------------------------------------------------------


class Heard:
    """What a keeper reports."""

    def __init__(self) -> None:
        self.starts: list[TaskId] = []
        self.ends: list[AttemptEnd] = []

    def on_attempt_started(self, task: TaskId, attempt: int) -> None:
        assert attempt == 1
        self.starts.append(task)

    def on_attempt_ended(self, end: AttemptEnd) -> None:
        self.ends.append(end)

    def on_capacity_withheld(self, node: int, amount: Resources) -> None:
        raise AssertionError(f"a keeper says nothing of room: {node} {amount}")


class Kept:
    """A keeper of one attempt, without any Slurm. Must be made on a loop."""

    def __init__(self, place: Path) -> None:
        self.shared, store = SharedDirectory(place / "shared", TaskUser()), AttemptStore(place)
        self.shared.make_directories()
        store.make_directories()
        self.clerk = FsThread()
        self.heard = Heard()
        self.keeper = AttemptTracker(self.shared, store, self.clerk, lambda: None, lambda _key: None)
        self.keeper.listener = self.heard
        self.attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
        self.keeper.attempts[self.attempt.key] = self.attempt
        self.clerk.start()


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_taken_back_never_begins_and_what_has_begun_goes_on(tmp_path: Path, begun: bool) -> None:
    async def story() -> None:
        kept = Kept(tmp_path)
        if begun:
            (kept.shared.records / f"{task(0)}.1.began").write_text("ran 4 0 5\n", encoding="ascii")
        kept.keeper.withdraw_start(kept.attempt, EndReason(Outcome.LOST, "it hangs"))
        await kept.clerk.drain(5)
        ends = [(end.outcome, end.note) for end in kept.heard.ends]
        assert ends == ([] if begun else [(Outcome.LOST, "it hangs")])
        assert kept.heard.starts == ([task(0)] if begun else [])
        assert (kept.attempt.end_reason is None) == begun

    asyncio.run(story())


def test_a_submission_without_an_answer_is_repeated_after_later_looks_alone(tmp_path: Path) -> None:
    async def story() -> None:
        kept = Kept(tmp_path)
        submitted: list[list[AttemptId]] = []
        review = SlurmReconciler(kept.keeper, submitted.append, BEGIN_MAX)
        kept.attempt.submit_count, kept.attempt.uncertain_since = 1, 1_000
        review.reconcile(PollResult(999, [], [], {}))  # it was begun before the submission was given up
        review.reconcile(PollResult(1_000, [], [], {}))
        assert submitted == [[], []]
        review.reconcile(PollResult(1_001, [], [], {}))
        assert submitted[2:] == [[kept.attempt.key]]
        kept.attempt.uncertain_since = 0  # Slurm said itself that it did not take it
        review.reconcile(PollResult(1_002, [], [], {}))
        assert submitted[3:] == [[kept.attempt.key]]
        review.reconcile(PollResult(1_003, [], [job("PENDING")], {kept.attempt.key: [job("PENDING")]}))
        assert submitted[4:] == [[]]
        assert kept.attempt.phase is SubmitPhase.SUBMITTED
        await kept.clerk.drain(5)

    asyncio.run(story())


def test_room_of_a_job_that_slurm_does_not_let_go_of_is_not_for_the_league(tmp_path: Path) -> None:
    """Its attempt is over, and it completes for a minute: its node is not free all that time."""

    async def story() -> None:
        kept = Kept(tmp_path)
        review = SlurmReconciler(kept.keeper, lambda _keys: None, BEGIN_MAX)
        completing = SlurmJob(1, -1, 1, "hanse:north:00:1-7.0#1", "COMPLETING", "n1", 2, 1 << 30)
        busy = SlurmNode("n1", True, 4, 4 << 30, (), 2, 1 << 30, (), (), (), "", "")
        room = SlurmCapacity((NodeConfig(Resources(4_000, 4 << 30), ((NODE_ATTRIBUTE, "n1"),)),))
        changes = []
        for at in (0, LINGER_MICROSECONDS - 1, LINGER_MICROSECONDS, LINGER_MICROSECONDS + 1):
            look = PollResult(at, [busy], [completing], {(task(1), 1): [completing]})
            assert review.find_useless_jobs(look) == []  # there is nothing to cancel
            ours = [] if (1, -1) in review.lingering_jobs else [completing]
            changes.append(room.update([busy], ours, {}))
        assert changes == [[], [], [], [(0, Resources(2_000, 1 << 30))]]
        await kept.clerk.drain(5)

    asyncio.run(story())


def test_a_task_that_was_told_to_end_and_is_cancelled_for_not_obeying_was_cancelled(tmp_path: Path) -> None:
    async def story() -> None:
        kept = Kept(tmp_path)
        (kept.shared.records / f"{task(0)}.1.began").write_text("ran 1 0 5\n", encoding="ascii")
        kept.attempt.phase, kept.attempt.started, kept.attempt.stop_at = SubmitPhase.SUBMITTED, True, 0
        review = SlurmReconciler(kept.keeper, lambda _keys: None, BEGIN_MAX)
        for at in (1, 1 + SCRIPT_DELAY_MICROSECONDS):
            review.reconcile(PollResult(at, [], [], {kept.attempt.key: [job("CANCELLED")]}))
        await kept.clerk.drain(5)
        assert [end.outcome for end in kept.heard.ends] == [Outcome.CANCELLED]

    asyncio.run(story())


class Mumbling:
    """A Slurm that cannot be understood at first."""

    has_arrays = True

    def __init__(self) -> None:
        self.said = 0

    async def nodes(self) -> list[SlurmNode]:
        return []

    async def partitions(self) -> list[SlurmPartition]:
        return []

    async def jobs(self) -> list[SlurmJob]:
        self.said += 1
        return [job("RUNNING")] if self.said > 1 else [int("nonsense")]  # type: ignore[list-item]

    async def submit(self, submission: SlurmSubmission) -> int:
        raise AssertionError(submission)

    async def cancel(self, jobs: Sequence[SlurmJob]) -> None:
        raise AssertionError(jobs)

    async def close(self) -> None:
        pass


def test_an_answer_that_is_not_understood_does_not_end_the_looking() -> None:
    async def story() -> None:
        away: list[str] = []
        seen: asyncio.Future[PollResult] = asyncio.get_running_loop().create_future()
        lookout = SlurmPoller(Mumbling(), "hanse:north:00:", lambda: 0.01, seen.set_result, away.append)
        looking = asyncio.get_running_loop().create_task(lookout.run())
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            look = await seen
        looking.cancel()
        await asyncio.wait([looking])
        assert [each.state for each in look.jobs] == ["RUNNING"]
        assert len(away) == 1
        assert "nonsense" in away[0]

    asyncio.run(story())


# --- in a real Slurm ----------------------------------------------------------------------------------------


@contextmanager
def cluster(message_seconds: int = 3) -> Iterator[tuple[Slurm, Path]]:
    """A cluster of its own, because its nodes are not well for a minute afterwards."""
    if why := missing():
        pytest.skip(why)
    with (
        slurm_clusters("baltic", message_seconds=message_seconds, down_seconds=300) as (slurm,),
        open_directory() as place,
    ):
        yield slurm, place


@DRIVERS
def test_a_submission_that_the_controller_answers_too_late_runs_once(driver: str) -> None:
    """It takes the job all the same, when nobody waits for its answer any more."""
    with cluster() as (slurm, place):
        log = Log(place)

        async def story(desk: Desk) -> None:
            desk.guard(now() + HOUR)
            slurm.pause("slurmctld")
            desk.start(launch(log.task(seconds=0.5)))
            await until(lambda: desk.room.keys() == {0, 1, 2}, "it is noticed")
            slurm.pause("slurmctld", signal.SIGCONT)
            assert (await desk.end_of()).outcome is Outcome.SUCCEEDED
            await until(lambda: our_names(slurm) == [], "nothing is left of it")
            assert log.said("begin") == log.said("end") == 1

        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)


@DRIVERS
def test_a_job_whose_node_does_not_answer_is_given_back(driver: str) -> None:
    """Slurm shows it as completing, for about a minute."""
    with cluster() as (slurm, place):
        log = Log(place)

        async def story(desk: Desk) -> None:
            desk.guard(now() + HOUR)
            slurm.pause(slurm.nodes[0])
            end = await desk.run(launch(log.task()))
            assert (end.outcome, desk.starts) == (Outcome.LOST, set())
            assert "launch" in end.note
            slurm.pause(slurm.nodes[0], signal.SIGCONT)

        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)
        assert log.said("begin") == 0


def test_a_job_that_slurm_puts_off_after_a_failed_launch_is_given_back() -> None:
    """It may begin two minutes later, although it was submitted as not to be requeued."""
    with cluster() as (slurm, place):
        log = Log(place)

        async def story(desk: Desk) -> None:
            desk.guard(now() + HOUR)
            slurm.pause(slurm.nodes[0])
            desk.start(launch(log.task()))
            await until(lambda: states(slurm) in (["RUNNING"], ["COMPLETING"]), "it is sent to its node")
            slurm.kill(slurm.nodes[0])
            slurm.start_node(slurm.nodes[0])
            assert (await desk.end_of()).outcome is Outcome.LOST
            assert (await desk.run(launch(log.task(), 1))).outcome is Outcome.SUCCEEDED

        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm)), story)
        assert log.said("begin") == 0


def test_a_job_that_runs_and_does_not_begin_is_given_back_and_is_refused_when_it_does() -> None:
    with cluster(message_seconds=60) as (slurm, place):
        log = Log(place)

        async def story(desk: Desk) -> None:
            desk.guard(now() + HOUR)
            slurm.pause(slurm.nodes[0])
            end = await desk.run(launch(log.task()))
            assert (end.outcome, end.note) == (Outcome.LOST, "in Slurm it is RUNNING, and it has not begun")
            slurm.pause(slurm.nodes[0], signal.SIGCONT)
            refused = place / "shared" / "records" / f"{task(0)}.1.refused"
            await until(lambda: refused.exists() or states(slurm) == [], "it is refused or cancelled")

        with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), begin_max=SECOND), story)
        assert log.said("begin") == 0


def states(slurm: Slurm) -> list[str]:
    """Of all jobs that are not over."""
    return slurm.run("squeue", "-h", "-o", "%T").split()


@pytest.mark.parametrize("change", ["priority=0", "starttime=now+3600", ""])
@DRIVERS
def test_a_job_that_is_held_or_waits_for_a_closed_node_is_given_back(
    slurm: Slurm, place: Path, driver: str, change: str
) -> None:
    log = Log(place)
    slurm.drain()

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(log.task()))
        if change:
            await until(lambda: len(our_names(slurm)) == 1, "it is there")
            number = slurm.run("squeue", "-h", "-o", "%i").strip()
            slurm.run("scontrol", "update", f"jobid={number}", change)
        end = await desk.end_of()
        assert (end.outcome, desk.starts) == (Outcome.LOST, set())
        assert ("Slurm holds it back" if change else "closed") in end.note
        await until(lambda: our_names(slurm) == [], "its job is cancelled")

    begin_max = HOUR if change else SECOND
    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver, begin_max=begin_max), story)
    slurm.resume()
    assert log.said("begin") == 0


@DRIVERS
def test_a_task_that_slurm_ends_to_launch_it_anew_is_lost_and_not_to_blame(
    slurm: Slurm, place: Path, driver: str
) -> None:
    """As it does by itself with a job whose launch was answered too late."""
    log = Log(place)

    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        # Not a shell with a child: it might go on when the child alone has ended.
        said = f'echo "begin $HANSE_TASK $HANSE_ATTEMPT" >> {log.path}'
        desk.start(launch(shell(f"{said}; exec sleep 3600")))
        await log.begun()
        number = slurm.run("squeue", "-h", "-o", "%i").strip()
        slurm.run("scontrol", "update", f"jobid={number}", "requeue=1")
        slurm.run("scontrol", "requeue", number)
        end = await desk.end_of()
        assert (end.outcome, end.note) == (Outcome.LOST, "Slurm ended it to launch it anew")
        assert end.usage is not None  # its script said that it was ended
        await until(lambda: our_names(slurm) == [], "it is not launched anew")

    with_desk(lambda: backend_on(slurm, place, nodes_of(slurm), driver), story)
    assert (log.said("begin"), log.said("end")) == (1, 0)
