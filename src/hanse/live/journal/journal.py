"""Journal: the durable, ordered records of a daemon, and the only durability primitive of Hanse.

The shell appends each event and passes it to its machine at once; the machine's effects wait until a commit
has made the event durable. One commit writes all records appended meanwhile as one block and syncs once, so
that the records that arrive during one sync share the cost of the next.
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from hanse.live.journal import layout
from hanse.live.journal.crash_recovery import recover
from hanse.live.journal.creation import create_journal, require_journal
from hanse.live.journal.disk import DISK, NO_SPACE_ERRNOS, Disk, lock, write_file
from hanse.live.journal.errors import JournalBehind, JournalError, JournalFull, RecordTooLarge
from hanse.live.journal.files import segment_name, snapshot_name
from hanse.live.journal.layout import PENDING_BYTES_MAX, PREFIX_BYTES, RECORD_BYTES_MAX, SNAPSHOT_BYTES_MAX
from hanse.live.journal.retention import RETAIN_BYTES, RetentionPlan, plan_retention
from hanse.live.journal.segments import PAGE, SEGMENT_BYTES, NoSpace, Segments, initial_size
from hanse.live.journal.survey import Survey


class JournalContents(msgspec.Struct, frozen=True):
    """Contents of a journal when it was opened."""

    snapshot: bytes | None
    """State of the newest snapshot; None: there is no snapshot, start from the initial state."""
    snapshot_position: int
    """Number of the last record that this state includes; 0 without a snapshot."""
    records: list[bytes]
    """Records after the snapshot, in order."""
    cut_bytes: int
    """Bytes of an incomplete block that was never acknowledged and was cut off. 0: none."""
    chain: str = ""
    """Value of the hash chain after the record ``chain_at`` of ``Journal.open``, in hexadecimal; empty: no
    retained block ends with this record."""


class Journal:
    """Journal that is open for writing. Made by ``open``.

    Only one thread may call ``append``. ``commit``, ``snapshot`` and ``close`` block and belong on another
    thread; they may overlap with ``append`` and with each other. After any error but ``JournalBehind`` and
    ``JournalFull`` the journal refuses every call: close it, and open it again. After a ``JournalFull`` the
    appended records still wait, and a later ``commit`` writes them when there is space.
    """

    def __init__(
        self,
        directory: Path,
        lock_fd: int,
        survey: Survey,
        disk: Disk,
        *,
        segment_bytes: int,
        retain_bytes: int,
    ) -> None:
        self._directory = directory
        self._lock_fd: int | None = lock_fd
        self._disk = disk
        self._retain_bytes = retain_bytes
        self._journal = survey.identity.journal
        self.identity = self._journal.hex()
        """Random identity, drawn when the journal was created."""
        self._segments = Segments(directory, disk, segment_bytes, survey)
        self._snapshots = survey.snapshots
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._pending_lock = threading.Lock()
        """Lock of the pending records; held only briefly."""
        self._write_lock = threading.Lock()
        self._snapshot_lock = threading.Lock()
        self._failure: JournalError | None = None
        """Error with which every call is refused; None: usable."""
        self.position = survey.tip.next - 1
        """Number of the last appended record, counted from 1 since the journal was created; 0: none."""
        self.durable = self.position
        """Number of the last durable record."""
        self.snapshot_position = survey.position
        """Position of the newest snapshot when the journal was opened; 0 without a snapshot."""
        self.snapshot_bytes = len(survey.state or b"")
        self.bytes = sum(map(len, survey.records))
        """Bytes of all records after that snapshot, both read and appended."""
        self.on_commit: Callable[[int, int, float], None] = lambda *_: None
        """Callback after each commit, on its thread: number of records, their bytes, duration in seconds."""

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        create: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
        retain_bytes: int = RETAIN_BYTES,
        disk: Disk = DISK,
        chain_at: int = 0,
    ) -> tuple[Self, JournalContents]:
        """Lock the journal in ``directory`` for this process and read it; ``create`` it if it is missing.
        ``chain_at``: record whose chain value is returned in ``JournalContents.chain``.

        Raises ``JournalInUse`` while another process has it open, ``CorruptJournal`` if anything retained is
        damaged (nothing is changed then), ``JournalFull`` if there is no space for a new one.
        """
        if create:
            _make_directory(directory, disk)
        else:
            require_journal(directory)
        lock_fd = lock(directory)
        try:
            if create:
                create_journal(directory, disk, segment_bytes)
            survey = recover(directory, disk, chain_at)
            journal = cls(
                directory, lock_fd, survey, disk, segment_bytes=segment_bytes, retain_bytes=retain_bytes
            )
        except BaseException as error:
            disk.close(lock_fd)
            if isinstance(error, OSError) and error.errno in NO_SPACE_ERRNOS:
                raise JournalFull(directory, initial_size(segment_bytes) + 2 * PAGE) from error
            raise
        chain = survey.chain_value.hex()
        recovered = JournalContents(survey.state, survey.position, survey.records, survey.cut, chain)
        survey.records = []
        return journal, recovered

    @property
    def mark(self) -> tuple[int, str]:
        """Number of the last durable record, and the value of the hash chain after its block, which covers
        all records before it; empty if no record is retained."""
        position, chain = self._segments.mark
        return (position, chain.hex()) if chain else (self.durable, "")

    @property
    def is_half_full(self) -> bool:
        """True if the uncommitted records exceed half of the limit of one commit."""
        return self._pending_bytes * 2 > PENDING_BYTES_MAX

    def check_append(self, size: int) -> None:
        """Raise the error that ``append`` would raise for a record of ``size`` bytes. Without the lock: the
        other thread may change the answer as soon as a lock is released."""
        if size > RECORD_BYTES_MAX:
            raise RecordTooLarge(size, RECORD_BYTES_MAX)
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._pending_bytes + size + PREFIX_BYTES > PENDING_BYTES_MAX:
            raise JournalBehind(self._pending_bytes, PENDING_BYTES_MAX)

    def append(self, record: bytes) -> int:
        """Keep a record for the next commit, not yet durable. Return its number."""
        with self._pending_lock:
            self.check_append(len(record))
            self._pending.append(record)
            self._pending_bytes += len(record) + PREFIX_BYTES
            self.bytes += len(record)
            self.position += 1
            return self.position

    def commit(self) -> int:
        """Make all appended records durable, as one block. Return the number of the last durable record."""
        with self._write_lock:
            with self._pending_lock:
                self._check_failure()
                records, self._pending = self._pending, []
                size, self._pending_bytes = self._pending_bytes, 0
            if records:
                begin = time.monotonic()
                try:
                    self._segments.write(records)
                except NoSpace as error:
                    with self._pending_lock:
                        self._pending[:0] = records
                        self._pending_bytes += size
                    raise JournalFull(self._directory, error.needed) from error
                except OSError as error:
                    raise self._fail_with(self._disk_failure(error)) from error
                except BaseException:
                    self._fail_with(JournalError("a commit was interrupted: open the journal again"))
                    raise
                self.durable += len(records)
                self.on_commit(len(records), size, time.monotonic() - begin)
            return self.durable

    def snapshot(self, position: int, state: bytes) -> None:
        """Write the state after record ``position`` durably, then drop files beyond the retention.

        On a full disk it raises ``JournalFull``, and the journal goes on without this snapshot.
        """
        assert len(state) <= SNAPSHOT_BYTES_MAX, "the state exceeds the limit of a snapshot"
        with self._snapshot_lock:
            self._check_failure()
            newest = max(self._snapshots, default=0)
            assert newest <= position <= self.durable, "a snapshot beyond the durable records, or in reverse"
            path = self._directory / snapshot_name(position)
            try:
                kept = self._plan_retention(position)
                head = layout.encode_snapshot_head(self._journal, position, state, kept.floor)
                write_file(self._disk, path, [head, state])
                self._snapshots[position] = len(head) + len(state)
                self._drop_old(kept)
            except OSError as error:
                if error.errno in NO_SPACE_ERRNOS:
                    path.with_name(path.name + ".tmp").unlink(missing_ok=True)
                    raise JournalFull(self._directory, len(state) + PAGE) from error
                raise self._fail_with(self._disk_failure(error)) from error

    def close(self) -> None:
        """Commit the appended records, write the block of an orderly close, and release the directory.

        A second call does nothing. After a failure only the directory is released: nothing is tried again.
        Records that find no space on the disk are dropped: they were never acknowledged.
        """
        with self._snapshot_lock:
            try:
                if self._lock_fd is not None and self._failure is None:
                    self.commit()
            except JournalFull:
                self._pending.clear()
            finally:
                with self._write_lock:
                    self._release()

    def _release(self) -> None:
        if self._lock_fd is None:
            return
        lock_fd, self._lock_fd = self._lock_fd, None
        try:
            if self._failure is None:
                self._failure = JournalError("the journal is closed")
                self._segments.close()
            else:
                self._segments.close_files()
        except OSError as error:
            raise self._disk_failure(error) from error
        finally:
            self._disk.close(lock_fd)

    def _plan_retention(self, position: int) -> RetentionPlan:
        segments = list(self._segments.segments)
        sizes = [(self._directory / segment_name(each.first)).stat().st_size for each in segments]
        return plan_retention(segments, sizes, self._snapshots, position, self._retain_bytes)

    def _drop_old(self, kept: RetentionPlan) -> None:
        for position in kept.snapshots:
            self._disk.unlink(self._directory / snapshot_name(position))
            del self._snapshots[position]
        for segment in self._segments.segments[: kept.segments]:
            self._disk.unlink(self._directory / segment_name(segment.first))
        del self._segments.segments[: kept.segments]
        if kept.snapshots or kept.segments:
            self._disk.sync_directory(self._directory)

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _disk_failure(self, error: OSError) -> JournalError:
        name = errno.errorcode.get(error.errno or 0, "an error")
        return JournalError(
            f"the disk under {self._directory} failed ({name}: {os.strerror(error.errno or 0)}); what was "
            "not acknowledged may be lost: check the disk, then open the journal again"
        )

    def _fail_with(self, failure: JournalError) -> JournalError:
        """Refuse every later call with ``failure``."""
        with self._pending_lock:
            self._failure = failure
        return failure


def _make_directory(directory: Path, disk: Disk) -> None:
    if directory.is_dir():
        return
    missing = [each for each in (directory, *directory.parents) if not each.is_dir()]
    directory.mkdir(parents=True, exist_ok=True)
    for each in missing:
        disk.sync_directory(each.parent)
