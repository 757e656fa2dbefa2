"""Taking starts back from Slurm, with the records alone: what has begun goes on, and nothing runs twice."""

import asyncio
from collections.abc import Sequence
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
from hanse.live.backends.slurm.attempt_tracker import SlurmAttemptTracker
from hanse.live.backends.slurm.capacity import NODE_ATTRIBUTE, SlurmCapacity
from hanse.live.backends.slurm.driver import SlurmJob, SlurmNode, SlurmPartition, SlurmSubmission
from hanse.live.backends.slurm.fs_thread import FsThread
from hanse.live.backends.slurm.job_names import AttemptId
from hanse.live.backends.slurm.poller import PollResult, SlurmPoller
from hanse.live.backends.slurm.reconciler import LINGER_MICROSECONDS, SlurmReconciler
from hanse.live.backends.slurm.shared_directory import SharedDirectory
from hanse.live.backends.slurm.stalled_starts import SCRIPT_DELAY_MICROSECONDS
from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd, Outcome
from hanse.model.resources import Resources
from tests.live.backends.desk import SECOND, WAIT_SECONDS_MAX, launch, task
from tests.live.backends.slurm.places import job_of_one_task

BEGIN_MAX = 60 * SECOND


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
        self.keeper = SlurmAttemptTracker(self.shared, store, self.clerk, lambda: None, lambda _key: None)
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
        review.reconcile(
            PollResult(
                1_003, [], [job_of_one_task("PENDING")], {kept.attempt.key: [job_of_one_task("PENDING")]}
            )
        )
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
            review.reconcile(PollResult(at, [], [], {kept.attempt.key: [job_of_one_task("CANCELLED")]}))
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
        return [job_of_one_task("RUNNING")] if self.said > 1 else [int("nonsense")]  # type: ignore[list-item]

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
