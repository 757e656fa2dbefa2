"""The directory that the daemon and all nodes share, as the daemon uses it. Every method blocks: it runs in a
thread.

    lease               end of the tasks' lease: milliseconds since 1970; 0: no limit yet
    orders/KEY          ``run`` or ``stop GRACE`` (milliseconds), by the daemon, before the job is submitted
    records/KEY.began   the job that took the attempt; made once, by a hard link
    records/KEY.ended   its end
    records/KEY.refused an execution that found the attempt taken
    output/KEY.*        its output
    keys/KEY            its standard input, if its job has a secret; the script removes it

``KEY`` is ``TASK.ATTEMPT``, both as numbers. The writes follow the rules for NFS in ``batch_script``.
"""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

from hanse.live.backends.interface import Stream
from hanse.live.backends.process.launch_requests import TaskUser
from hanse.live.backends.slurm.batch_script import BeginRecord, EndRecord, read_begin_record, read_end_record
from hanse.live.backends.slurm.job_names import AttemptId
from hanse.model.ids import TaskId

RECORD_BYTES_MAX: Final = 4_096
INSTANCE_BYTES: Final = 4
_LEASE_DIGITS: Final = 16
_STREAMS: Final = (Stream.STDOUT, Stream.STDERR)


class AttemptRecords(msgspec.Struct, frozen=True):
    """All records of an attempt."""

    begin: BeginRecord | None
    end: EndRecord | None
    has_refusal: bool


def file_stem(key: AttemptId) -> str:
    """Return an attempt's part of its file names."""
    return f"{key[0]}.{key[1]}"


def parse_record_name(name: str) -> AttemptId | None:
    """Return the attempt of a record; None for other files."""
    task, _, rest = name.partition(".")
    attempt, _, kind = rest.partition(".")
    if kind not in ("began", "ended", "refused") or not (task.isdecimal() and attempt.isdecimal()):
        return None
    return TaskId(int(task)), int(attempt)


class SharedDirectory:
    """One runner's part of the shared directory."""

    def __init__(self, directory: Path, user: TaskUser) -> None:
        self.path = directory
        self.records = directory / "records"
        self.output = directory / "output"
        self._orders = directory / "orders"
        self._keys = directory / "keys"
        self._lease = directory / "lease"
        self._user = user

    def make_directories(self) -> str:
        """Make the missing files; return the instance, which is drawn once."""
        for directory in (self.path, self._orders, self.records, self.output):
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._keys.mkdir(mode=0o700, exist_ok=True)  # only the tasks' account may read it
        if self._user.uid >= 0:
            for directory in (self.records, self.output, self._keys):
                os.chown(directory, self._user.uid, self._user.gid)
        instance = self.path / "instance"
        if not instance.exists():
            part = instance.with_suffix(".part")
            part.write_text(secrets.token_hex(INSTANCE_BYTES), encoding="ascii")
            part.replace(instance)
        if not self._lease.exists():
            self.write_lease(0)
        return instance.read_text(encoding="ascii").strip()

    def write_lease(self, until: int) -> None:
        """Write the lease, in place: a new file may be seen late."""
        file = os.open(self._lease, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(file, f"{until:<{_LEASE_DIGITS}}\n".encode(), 0)
        finally:
            os.close(file)

    def read_lease(self) -> int:
        """Return the lease; 0 if none was ever written."""
        text = _read(self._lease)
        return int(text) if text is not None and text.strip().isdigit() else 0

    def write_orders(self, key: AttemptId, text: str) -> None:
        """Write an attempt's orders."""
        path = self._orders / file_stem(key)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(file, f"{text:<24}\n".encode(), 0)
        finally:
            os.close(file)

    def write_key(self, key: AttemptId, text: str) -> None:
        """Write an attempt's standard input, for the account of the tasks alone."""
        path = self._keys / file_stem(key)
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, text.encode("ascii"))
            if self._user.uid >= 0:
                os.fchown(file, self._user.uid, self._user.gid)
        finally:
            os.close(file)

    def read_orders(self, key: AttemptId) -> str:
        """Return an attempt's orders; empty if it has none."""
        return (_read(self._orders / file_stem(key)) or "").strip()

    def revoke(self, key: AttemptId) -> AttemptRecords:
        """Take an attempt, so that no job ever runs it, unless a job has taken it before."""
        part = self.records / f".{file_stem(key)}.daemon"
        part.write_text("revoked\n", encoding="ascii")
        try:
            with contextlib.suppress(FileExistsError):
                os.link(part, self.records / f"{file_stem(key)}.began")
        finally:
            part.unlink()
        return self.read_records(key)

    def read_records(self, key: AttemptId) -> AttemptRecords:
        """Return an attempt's records. The end is read last: it is the last that is written."""
        base = str(self.records / file_stem(key))
        began = _read(Path(f"{base}.began"))
        refused = Path(f"{base}.refused").exists()
        ended = _read(Path(f"{base}.ended"))
        return AttemptRecords(
            None if began is None else read_begin_record(began),
            None if ended is None else read_end_record(ended),
            refused,
        )

    def list_records(self) -> list[str]:
        """Return the names of all records."""
        return [path.name for path in self.records.iterdir()]

    def drop_records(self, key: AttemptId) -> int:
        """Drop all but the output, and return the output's size. Orders go first: without them a late job
        does not run."""
        name = file_stem(key)
        (self._orders / name).unlink(missing_ok=True)
        (self._keys / name).unlink(missing_ok=True)
        for kind in ("began", "ended", "refused"):
            (self.records / f"{name}.{kind}").unlink(missing_ok=True)
        size = 0
        for stream in _STREAMS:
            with contextlib.suppress(FileNotFoundError):
                size += (self.output / f"{name}.{stream}").stat().st_size
        return size

    def drop_output(self, key: AttemptId) -> None:
        """Drop the output."""
        for stream in _STREAMS:
            (self.output / f"{file_stem(key)}.{stream}").unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(RECORD_BYTES_MAX).decode(errors="replace")
    except FileNotFoundError:
        return None
