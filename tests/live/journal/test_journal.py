"""What a journal promises its daemon while nothing goes wrong, and its refusals."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hanse.live.journal import (
    Journal,
    JournalBehind,
    JournalError,
    JournalInUse,
    NotRetained,
    RecordTooLarge,
    read_history,
    read_records,
)
from hanse.live.journal.disk import Disk
from hanse.live.journal.layout import PENDING_BYTES_MAX, RECORD_BYTES_MAX
from hanse.live.journal.reserve import RESERVE_BYTES
from hanse.live.journal.segments import SEGMENT_BYTES_FIRST


def numbered(count: int, size: int = 0) -> list[bytes]:
    return [b"record %d " % number + b"." * size for number in range(1, count + 1)]


def test_records_come_back_in_order_with_their_numbers(tmp_path: Path) -> None:
    journal, recovered = Journal.open(tmp_path / "new" / "journal")
    assert recovered.records == []
    assert recovered.snapshot is None
    records = numbered(5000, 40)
    for number, record in enumerate(records, 1):
        assert journal.append(record) == number
        if number % 700 == 0:
            assert journal.commit() == journal.durable == number
    assert (journal.position, journal.durable) == (5000, 4900)
    journal.close()
    journal, recovered = Journal.open(tmp_path / "new" / "journal", create=False)
    assert recovered.records == records
    assert (journal.position, journal.durable, recovered.cut_bytes) == (5000, 5000, 0)
    journal.close()
    assert list(read_records(tmp_path / "new" / "journal", 4998)) == [
        (4999, records[4998]),
        (5000, records[4999]),
    ]
    assert list(read_records(tmp_path / "new" / "journal", 5000)) == []


def test_an_empty_commit_writes_nothing(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    journal.append(b"one")
    journal.commit()
    before = (tmp_path / f"{1:020d}.seg").read_bytes()
    assert journal.commit() == 1
    assert (tmp_path / f"{1:020d}.seg").read_bytes() == before
    journal.close()


class BusyDisk(Disk):
    """While it writes, something happens."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] = lambda: None

    def sync(self, fd: int) -> None:
        self.meanwhile()
        super().sync(fd)


def test_what_is_appended_during_a_commit_is_not_durable_with_it(tmp_path: Path) -> None:
    disk = BusyDisk()
    journal, _ = Journal.open(tmp_path, disk=disk)
    journal.append(b"one")
    disk.meanwhile = lambda: journal.append(b"two")
    assert journal.commit() == journal.durable == 1
    disk.meanwhile = lambda: None
    assert journal.position == 2
    assert journal.commit() == 2
    journal.close()


def test_what_was_appended_and_not_committed_is_not_there(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    journal.append(b"one")
    journal.commit()
    journal.append(b"two")
    assert [record for _, record in read_records(tmp_path)] == [b"one"]
    journal.close()
    assert [record for _, record in read_records(tmp_path)] == [b"one", b"two"]


def test_a_snapshot_replaces_the_records_it_has_seen(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    for record in numbered(10):
        journal.append(record)
    journal.commit()
    journal.snapshot(7, b"state after seven")
    journal.close()
    journal, recovered = Journal.open(tmp_path)
    assert (recovered.snapshot, recovered.snapshot_position) == (b"state after seven", 7)
    assert recovered.records == numbered(10)[7:]
    journal.close()
    past = read_history(tmp_path)
    assert (past.snapshot, past.position) == (None, 0)
    assert [record for _, record in past.records] == numbered(10)


def test_a_snapshot_of_what_is_not_durable_is_our_bug(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    journal.append(b"one")
    with pytest.raises(AssertionError):
        journal.snapshot(1, b"")
    journal.close()


def test_an_idle_journal_takes_little_room(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    journal.append(b"booted")
    journal.commit()
    taken = sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir())
    assert taken <= SEGMENT_BYTES_FIRST + RESERVE_BYTES + 4 * 4096
    journal.close()


def test_the_largest_records_pass_and_larger_ones_do_not(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path, segment_bytes=1 << 20)
    large = os.urandom(1 << 16) * (RECORD_BYTES_MAX >> 16)
    journal.append(b"small")
    journal.commit()
    journal.append(large)
    journal.append(b"behind")
    assert journal.commit() == 3
    with pytest.raises(RecordTooLarge, match=str(RECORD_BYTES_MAX)):
        journal.append(large + b"x")
    assert journal.position == 3
    journal.append(b"still usable")
    journal.close()
    journal, recovered = Journal.open(tmp_path)
    assert recovered.records == [b"small", large, b"behind", b"still usable"]
    journal.close()


def test_too_much_without_a_commit_is_refused_and_can_be_made_good(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    record = bytes(RECORD_BYTES_MAX)
    for _ in range(PENDING_BYTES_MAX // RECORD_BYTES_MAX - 1):
        journal.append(record)
    with pytest.raises(JournalBehind, match="commit first"):
        journal.append(record)
    assert journal.position == 7
    assert journal.commit() == 7
    assert journal.append(record) == 8
    journal.close()
    assert [number for number, _ in read_records(tmp_path)] == list(range(1, 9))


def test_there_must_be_a_journal_where_none_may_be_created(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no journal in"):
        Journal.open(tmp_path, create=False)
    with pytest.raises(JournalError, match="no journal in"):
        read_records(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_second_opener_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    with pytest.raises(JournalInUse, match=f"process {os.getpid()}") as told:
        Journal.open(tmp_path)
    assert told.value.pid == os.getpid()
    elsewhere = (
        "import sys; from pathlib import Path; from hanse.live.journal import Journal, JournalInUse\n"
        "try: Journal.open(Path(sys.argv[1]))\n"
        "except JournalInUse as told: print(told.pid)"
    )
    said = subprocess.run(
        [sys.executable, "-c", elsewhere, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(said.stdout) == os.getpid()
    journal.close()
    journal, _ = Journal.open(tmp_path)
    journal.close()


def test_a_closed_journal_refuses_and_closing_twice_is_closing(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.append(b"late")
    with pytest.raises(JournalError, match="closed"):
        journal.commit()
    with pytest.raises(JournalError, match="closed"):
        journal.snapshot(0, b"")


def test_one_thread_appends_while_another_commits_and_a_third_reads(tmp_path: Path) -> None:
    """The newest durable number never runs ahead, nothing is lost, doubled or seen in part."""
    journal, _ = Journal.open(tmp_path, segment_bytes=100_000, retain_bytes=50_000)
    records = numbered(10_000, 30)
    done = threading.Event()
    committed = threading.Semaphore(0)
    faults: list[str] = []

    def committing() -> None:
        while not done.is_set():
            position = journal.commit()
            if position % 5 == 0:
                journal.snapshot(position, b"state %d" % position)
            committed.release()
        journal.commit()

    def reading() -> None:
        while not done.is_set():
            begin = max(0, journal.durable - 200)
            try:
                seen = list(read_records(tmp_path, begin))
            except NotRetained:
                continue
            if seen != [(number, records[number - 1]) for number in range(begin + 1, begin + 1 + len(seen))]:
                faults.append(f"after {begin}: {seen[:3]}")

    threads = [threading.Thread(target=committing), threading.Thread(target=reading)]
    for thread in threads:
        thread.start()
    for number, record in enumerate(records, 1):
        assert journal.append(record) == number
        assert journal.durable <= number
        if number % 20 == 0:
            committed.acquire()
    done.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert journal.durable == 10_000
    journal.close()
    journal, recovered = Journal.open(tmp_path)
    assert recovered.records == records[recovered.snapshot_position :]
    journal.close()


class FailingDisk(Disk):
    """Fails every sync from now on, as a dying disk does, once it is told to."""

    def __init__(self) -> None:
        self.failing = False
        self.syncs = 0

    def sync(self, fd: int) -> None:
        self.syncs += 1
        if self.failing:
            raise OSError(5, "Input/output error")
        super().sync(fd)


def test_a_failed_sync_is_final(tmp_path: Path) -> None:
    disk = FailingDisk()
    journal, _ = Journal.open(tmp_path, disk=disk)
    journal.append(b"good")
    journal.commit()
    journal.append(b"in doubt")
    disk.failing = True
    with pytest.raises(JournalError, match="EIO"):
        journal.commit()
    disk.failing = False
    tried = disk.syncs
    for call in (lambda: journal.append(b"late"), journal.commit, lambda: journal.snapshot(1, b"")):
        with pytest.raises(JournalError, match="EIO"):
            call()
    assert journal.durable == 1
    journal.close()
    assert disk.syncs == tried, "a sync was tried again"
    journal, recovered = Journal.open(tmp_path)
    assert recovered.records in ([b"good"], [b"good", b"in doubt"])
    journal.close()


def test_a_sync_that_fails_at_the_end_is_told_and_lets_go(tmp_path: Path) -> None:
    disk = FailingDisk()
    journal, _ = Journal.open(tmp_path, disk=disk)
    journal.append(b"good")
    journal.commit()
    disk.failing = True
    with pytest.raises(JournalError, match="EIO"):
        journal.close()
    journal.close()
    journal, recovered = Journal.open(tmp_path)
    assert recovered.records == [b"good"]
    journal.close()


class CountingDisk(Disk):
    """Remembers what was written where."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []

    def write(self, fd: int, data: bytes, offset: int) -> None:
        self.written.append((offset, len(data)))
        super().write(fd, data, offset)


def test_the_newest_block_is_written_again_before_anybody_acts_on_it(tmp_path: Path) -> None:
    """It may never have reached the disk: after a failed sync the kernel takes lost pages for clean."""
    journal, _ = Journal.open(tmp_path)
    for size in (10, 2000):
        journal.append(bytes(size))
        journal.commit()
    journal._segments._closed = True  # as if killed: no word of a good end
    journal.close()
    disk = CountingDisk()
    journal, _ = Journal.open(tmp_path, disk=disk)
    assert disk.written[0] == (512, 5 * 512)  # behind it: the reserve
    journal.close()
