"""What records and Slurm's words make of an attempt's end, and the files in which that is decided."""

from pathlib import Path

import pytest

from hanse.live.backends.process.launch_requests import TaskUser
from hanse.live.backends.slurm.attempt_store import NO_PROGRAM, EndReason, SlurmAttempt
from hanse.live.backends.slurm.batch_script import BeginRecord, EndRecord, read_begin_record, read_end_record
from hanse.live.backends.slurm.exit_status import end_from_record
from hanse.live.backends.slurm.shared_directory import SharedDirectory
from hanse.model.ids import TaskId
from hanse.model.messages import Outcome
from tests.live.backends.desk import launch


def test_records_are_read_or_not_believed() -> None:
    assert read_begin_record("ran 12 0 1700000000000\n") == BeginRecord("ran", 12, 0, 1_700_000_000_000)
    assert read_begin_record("revoked\n") == BeginRecord("revoked")
    assert read_begin_record("ran 12 0") is None
    assert read_begin_record("") is None
    ended = read_end_record("0 137 0m1.5s 1m0.25s 4096 1000 3500 outside\n")
    assert ended == EndRecord(0, -9, 61_750_000, 4_096, 2_500_000, True)
    assert read_end_record("0 255 0m0s 0m0s 0 1 2 inside") == EndRecord(0, 255, 0, 0, 1_000, False)
    assert read_end_record("0 0 0m0s") is None


@pytest.mark.parametrize(
    ("state", "outcome", "note"),
    [
        ("TIMEOUT", Outcome.FAILED, "time limit"),
        ("PREEMPTED", Outcome.PREEMPTED, "preempted"),
        ("NODE_FAIL", Outcome.LOST, "node failed"),
        ("OUT_OF_MEMORY", Outcome.FAILED, "out of memory"),
        ("CANCELLED", Outcome.FAILED, "somebody else"),
        ("FAILED", Outcome.FAILED, ""),
        ("", Outcome.FAILED, ""),
    ],
)
def test_slurm_explains_why_a_task_was_killed(state: str, outcome: Outcome, note: str) -> None:
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
    killed = EndRecord(0, -9, 0, 0, 0, False)
    assert end_from_record(attempt, killed, None) is None
    end = end_from_record(attempt, killed, state)
    assert end is not None
    assert (end.outcome, end.exit_code) == (outcome, -9)
    assert note in end.note
    assert bool(note) == bool(end.note)


@pytest.mark.parametrize(
    ("state", "outcome", "note"),
    [
        ("PENDING", Outcome.LOST, "anew"),
        ("REQUEUE_HOLD", Outcome.LOST, "anew"),
        ("", Outcome.LOST, "does not say why"),
        ("PREEMPTED", Outcome.PREEMPTED, "preempted"),
        ("CANCELLED", Outcome.FAILED, "somebody else"),
        ("FAILED", Outcome.FAILED, ""),
    ],
)
def test_what_was_ended_from_outside_has_failed_only_if_somebody_wanted_that(
    state: str, outcome: Outcome, note: str
) -> None:
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
    end = end_from_record(attempt, EndRecord(0, -15, 0, 0, 0, True), state)
    assert end is not None
    assert end.outcome is outcome
    assert note in end.note


def test_who_wanted_an_end_decides_what_it_is_called() -> None:
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
    by_itself, by_lease, by_order = (
        EndRecord(why, code, 0, 0, 0, False) for why, code in ((0, 3), (10, -9), (11, 0))
    )
    for ended, outcome in (
        (by_itself, Outcome.FAILED),
        (by_lease, Outcome.LOST),
        (by_order, Outcome.CANCELLED),
    ):
        end = end_from_record(attempt, ended, None)
        assert end is not None
        assert end.outcome is outcome
    attempt.end_reason = EndReason(Outcome.LOST, "its node failed")
    ends = [end_from_record(attempt, ended, None) for ended in (by_itself, by_order)]
    assert [end and end.outcome for end in ends] == [Outcome.FAILED, Outcome.LOST]


def test_an_attempt_is_taken_once(tmp_path: Path) -> None:
    shared = SharedDirectory(tmp_path / "shared", TaskUser())
    instance = shared.make_directories()
    assert shared.make_directories() == instance
    one, other = (TaskId(5), 1), (TaskId(6), 1)
    assert shared.revoke(one).begin == BeginRecord("revoked")
    (shared.records / "6.1.began").write_text("ran 4 0 5\n", encoding="ascii")
    assert shared.revoke(other).begin == BeginRecord("ran", 4, 0, 5)
    shared.write_orders(one, "run")
    shared.write_orders(one, "stop 3600000")
    shared.write_orders(one, "stop 0")
    assert shared.read_orders(one) == "stop 0"
    shared.drop_records(one)
    assert shared.read_orders(one) == ""
    assert shared.read_records(one).begin is None


def test_the_lease_is_written_in_place(tmp_path: Path) -> None:
    shared = SharedDirectory(tmp_path / "shared", TaskUser())
    shared.make_directories()
    assert shared.read_lease() == 0
    inode = (tmp_path / "shared" / "lease").stat().st_ino
    for until in (1_700_000_000_000, 9):
        shared.write_lease(until)
        assert shared.read_lease() == until
    assert (tmp_path / "shared" / "lease").stat().st_ino == inode


@pytest.mark.parametrize("state", ["", "CANCELLED"])
def test_what_a_controller_ends_when_it_comes_back_is_lost_and_not_the_tasks_fault(state: str) -> None:
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
    attempt.saw_outage = True
    end = end_from_record(attempt, EndRecord(0, -15, 0, 0, 0, True), state)
    assert end is not None
    assert end.outcome is Outcome.LOST
    assert "controller came back" in end.note
    own = end_from_record(attempt, EndRecord(0, 7, 0, 0, 0, False), "")
    assert own is not None
    assert (own.outcome, own.exit_code) == (Outcome.FAILED, 7), "what it did by itself is its own"


@pytest.mark.parametrize(("later", "outcome"), [(1, Outcome.FAILED), (2, Outcome.LOST)])
def test_what_slurm_cancels_because_it_launched_it_twice_is_lost(later: int, outcome: Outcome) -> None:
    """The second launch is later than the start of what the first one launched; the clocks of two machines
    and Slurm's whole seconds may differ by more than one."""
    attempt = SlurmAttempt(launch(b""), NO_PROGRAM, 0)
    attempt.begin_record = BeginRecord("ran", 4, 0, 1_700_000_000_100)
    attempt.launch_times = {4: 1_700_000_000 + later, 3: 1_800_000_000}
    end = end_from_record(attempt, EndRecord(0, -15, 0, 0, 0, True), "CANCELLED")
    assert end is not None
    assert end.outcome is outcome
    assert ("launched it again" in end.note) == (outcome is Outcome.LOST)
    own = end_from_record(attempt, EndRecord(0, 7, 0, 0, 0, False), "CANCELLED")
    assert own is not None
    assert (own.outcome, own.exit_code) == (Outcome.FAILED, 7), "what it did by itself is its own"
