"""The daemon's records of its attempts, in memory and on its own disk.

A launch is on disk before its submission to Slurm, and its end until it is forgotten. Not synced: after a
crash of the daemon's machine the shared directory still has the starts and ends, and an attempt without a
record never ran, because a job without orders does not start its task.
"""

import contextlib
import fcntl
import os
from enum import IntEnum
from pathlib import Path
from typing import Final

import msgspec

from hanse.live.backends.slurm.batch_script import BeginRecord, EndRecord
from hanse.live.backends.slurm.job_names import AttemptId
from hanse.live.backends.slurm.shared_directory import file_stem
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd, Outcome
from hanse.model.program import Program

NO_PROGRAM: Final = Program(())
"""Stands for a program that could not be read."""


class SubmitPhase(IntEnum):
    """Progress of an attempt's submission to Slurm."""

    WAITING = 0
    """To be submitted."""
    SUBMITTING = 1
    SUBMITTED = 2
    """Acknowledged, or found in Slurm's list."""


class EndReason(msgspec.Struct, frozen=True):
    """End of an attempt, for the time when it certainly does not run."""

    outcome: Outcome
    note: str = ""
    code: int = 0


class SlurmAttempt:
    """An attempt until it is forgotten. Times are in CLOCK_BOOTTIME microseconds except ``requested_at``."""

    __slots__ = (
        "begin_record",
        "certain_end_at",
        "end",
        "end_reason",
        "end_record",
        "explanation_deadline",
        "explanation_due",
        "final_since",
        "final_state",
        "has_live_job",
        "has_refusal",
        "launch",
        "launch_times",
        "missing_polls",
        "pending_reason",
        "phase",
        "program",
        "requested_at",
        "saw_outage",
        "stalled_since",
        "started",
        "stop_at",
        "submit_count",
        "submit_deadline",
        "submit_error",
        "submitted_at",
        "uncertain_since",
    )  # fmt: skip

    def __init__(
        self, launch: LaunchAttempt, program: Program, submit_deadline: int, requested_at: int = 0
    ) -> None:
        self.launch = launch
        self.program = program
        self.phase = SubmitPhase.WAITING
        self.submit_deadline = submit_deadline
        """Time to give up a start that Slurm does not acknowledge."""
        self.requested_at = requested_at
        """Time of the request to start, in unix microseconds: for people."""
        self.submitted_at = 0
        self.submit_count = 0
        self.uncertain_since = 0
        """Time of a submission that was given up and may have reached Slurm all the same."""
        self.stalled_since = 0
        """Time since which its job hangs, by the polls of Slurm; 0: it does not."""
        self.submit_error = ""
        """Slurm's reason for not taking it yet; empty: Slurm was not asked, or did not answer."""
        self.pending_reason = ""
        """Reason for which it waited in Slurm's queue at the request to stop; empty: it was not there."""
        self.missing_polls = 0
        """Polls in a row that did not show it."""
        self.started = False
        self.stop_at: int | None = None
        self.begin_record: BeginRecord | None = None
        self.end_record: EndRecord | None = None
        self.has_refusal = False
        self.saw_outage = False
        """True if it lived while the controller was away: a returning controller ends what it does not
        remember as it is."""
        self.launch_times: dict[int, int] = {}
        """Launch times of its jobs, by their own numbers, in unix seconds, as of the latest poll that showed
        any; 0: not yet."""
        self.final_state = ""
        """State in which it ended, according to Slurm."""
        self.final_since = 0
        self.explanation_due = 0
        """Time until which to wait for Slurm's explanation of its end."""
        self.explanation_deadline = 0
        """The same, as long as Slurm still lists the job."""
        self.has_live_job = False
        """True if the latest poll showed a job of it that had not ended."""
        self.end_reason: EndReason | None = None
        self.certain_end_at = 0
        """Time at which it has certainly ended, even if its node is lost."""
        self.end: AttemptEnd | None = None

    @property
    def key(self) -> AttemptId:
        """Task and attempt."""
        return self.launch.task, self.launch.attempt


class AttemptStore:
    """Files of the daemon: ``attempts/KEY`` and ``ends/KEY``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._launches = directory / "attempts"
        self._ends = directory / "ends"

    def lock(self) -> int:
        """Lock the directory for this daemon; raise ``OSError`` if another one has it. Returns the descriptor
        that holds the lock."""
        lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise OSError(f"another daemon uses {self._directory}") from None
        return lock

    def make_directories(self) -> None:
        """Make the missing directories."""
        for path in (self._launches, self._ends):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def save_launch(self, launch: LaunchAttempt) -> None:
        """Write the record of an attempt."""
        _write(self._launches / file_stem((launch.task, launch.attempt)), msgspec.msgpack.encode(launch))

    def save_end(self, end: AttemptEnd) -> None:
        """Write an end."""
        _write(self._ends / file_stem((end.task, end.attempt)), msgspec.msgpack.encode(end))

    def saved_at(self, key: AttemptId) -> int:
        """Return the time of an attempt's record, in unix microseconds; 0: it has none."""
        try:
            return (self._launches / file_stem(key)).stat().st_mtime_ns // 1_000
        except FileNotFoundError:
            return 0

    def drop(self, key: AttemptId) -> None:
        """Remove both records of an attempt."""
        for path in (self._launches, self._ends):
            (path / file_stem(key)).unlink(missing_ok=True)

    def load(self) -> list[tuple[LaunchAttempt, AttemptEnd | None]]:
        """Return all recorded attempts, in the order of their keys. A record that a crash of the machine cut
        short is of an attempt that was never submitted."""
        found: list[tuple[LaunchAttempt, AttemptEnd | None]] = []
        for path in sorted(self._launches.iterdir(), key=lambda path: _sort_key(path.name)):
            with contextlib.suppress(msgspec.MsgspecError):
                launch = _launch_decoder.decode(path.read_bytes())
                found.append((launch, self._load_end(path.name)))
        return found

    def _load_end(self, name: str) -> AttemptEnd | None:
        try:
            return _end_decoder.decode((self._ends / name).read_bytes())
        except (FileNotFoundError, msgspec.MsgspecError):
            return None


def _sort_key(name: str) -> tuple[TaskId, int]:
    task, _, attempt = name.partition(".")
    good = task.isdecimal() and attempt.isdecimal()
    return (TaskId(int(task)), int(attempt)) if good else (TaskId(0), 0)


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}")
    part.write_bytes(content)
    part.replace(path)


_launch_decoder = msgspec.msgpack.Decoder(LaunchAttempt)
_end_decoder = msgspec.msgpack.Decoder(AttemptEnd)
