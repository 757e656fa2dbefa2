"""A full disk: refused in good order, nothing half written taken for durable, and no lasting harm."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.live.journal import Journal, JournalFull, read_records, segments
from hanse.live.journal.repair import verify
from hanse.live.journal.reserve import RESERVE_NAME

SIZE = 256 << 10
"""Bytes of the disk."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A very small disk."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a disk of our own cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    # Lazily: a failed test may have left a journal open, and the mount must not outlive it.
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(journal: Journal, record: bytes) -> tuple[int, JournalFull]:
    """Commit one by one until the disk is full; the last acknowledged number, and the refusal."""
    acknowledged = 0
    while True:
        try:
            journal.append(record)
            acknowledged = journal.commit()
        except JournalFull as refused:
            return acknowledged, refused


@pytest.mark.parametrize("segment_bytes", [32 << 10, 16 << 20])
def test_a_full_disk_refuses_and_recovers(disk: Path, segment_bytes: int) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(64 << 10))
    directory = disk / "journal"
    journal, _ = Journal.open(directory, segment_bytes=segment_bytes)
    record = b"x" * 1500
    acknowledged, refused = fill(journal, record)
    assert acknowledged > 50
    assert 0 < refused.needed <= SIZE
    assert str(refused.needed) in str(refused)
    with pytest.raises(JournalFull):
        journal.commit()
    assert journal.durable == acknowledged
    journal.close()
    assert verify(directory).problem is None

    # Still full: what was acknowledged can be read, and the next commit is refused again.
    journal, recovered = Journal.open(directory, segment_bytes=segment_bytes)
    assert recovered.records == [record] * acknowledged
    more, _ = fill(journal, record)
    assert more in (0, acknowledged)
    journal.close()

    ballast.unlink()
    journal, recovered = Journal.open(directory, segment_bytes=segment_bytes)
    assert recovered.records == [record] * acknowledged
    assert journal.append(b"after") == acknowledged + 1
    assert journal.commit() == acknowledged + 1
    journal.close()
    assert [number for number, _ in read_records(directory, acknowledged)] == [acknowledged + 1]


@pytest.mark.parametrize("segment_bytes", [32 << 10, 16 << 20])
def test_what_found_no_room_is_written_when_there_is(disk: Path, segment_bytes: int) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(64 << 10))
    directory = disk / "journal"
    journal, _ = Journal.open(directory, segment_bytes=segment_bytes)
    record = b"x" * 1500
    acknowledged, _ = fill(journal, record)
    assert journal.append(b"while full") == acknowledged + 2
    with pytest.raises(JournalFull):
        journal.commit()
    ballast.unlink()
    assert journal.commit() == acknowledged + 2
    journal.append(b"after")
    journal.close()
    assert verify(directory).problem is None
    kept = [data for _, data in read_records(directory, 0)]
    assert kept == [record] * (acknowledged + 1) + [b"while full", b"after"]


def test_the_reserve_is_the_journals_own_when_somebody_else_fills_the_disk(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "RESERVE_BYTES", 20 << 10)
    directory = disk / "journal"
    journal, _ = Journal.open(directory)
    journal.append(b"first")
    journal.commit()
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        while (free := os.statvfs(disk).f_bavail) > 0:
            ballast.write(bytes(free * 4096))
    record = b"x" * 1500
    acknowledged, _ = fill(journal, record)
    assert acknowledged > 36  # blocks of 2 KiB; the first segment's room takes 32
    assert len(list(directory.glob("*.seg"))) == 2
    (disk / "ballast").unlink()
    acknowledged = journal.commit()  # what found no room
    while not (directory / RESERVE_NAME).exists():  # a new reserve is made when room is next taken
        journal.append(record)
        acknowledged = journal.commit()
    journal.close()
    assert not (directory / RESERVE_NAME).exists()
    assert verify(directory).problem is None
    assert [data for _, data in read_records(directory, 0)] == [b"first"] + [record] * (acknowledged - 1)


def test_freeing_what_was_asked_for_is_enough(disk: Path) -> None:
    directory = disk / "journal"
    journal, _ = Journal.open(directory)
    journal.append(b"first")
    journal.commit()
    free = os.statvfs(disk).f_bavail * 4096
    (disk / "ballast").write_bytes(bytes(free))
    large = b"y" * 100_000
    journal.append(large)
    with pytest.raises(JournalFull) as refused:
        journal.commit()
    journal.close()
    os.truncate(disk / "ballast", free - refused.value.needed)
    journal, recovered = Journal.open(directory)
    assert recovered.records == [b"first"]
    journal.append(large)
    assert journal.commit() == 2
    journal.close()


def test_a_snapshot_that_finds_no_room_leaves_the_journal_at_work(disk: Path) -> None:
    directory = disk / "journal"
    journal, _ = Journal.open(directory)
    journal.append(b"first")
    journal.commit()
    with pytest.raises(JournalFull) as refused:
        journal.snapshot(1, bytes(SIZE))
    assert refused.value.needed > SIZE
    assert not list(directory.glob("*.snap*"))
    journal.append(b"second")
    assert journal.commit() == 2
    journal.snapshot(2, b"small")
    journal.close()
    journal, recovered = Journal.open(directory)
    assert (recovered.snapshot, recovered.records) == (b"small", [])
    journal.close()


def test_no_room_for_a_new_journal(disk: Path) -> None:
    (disk / "ballast").write_bytes(bytes(os.statvfs(disk).f_bavail * 4096 - 8192))
    with pytest.raises(JournalFull) as refused:
        Journal.open(disk / "journal")
    assert refused.value.needed >= 64 << 10
    (disk / "ballast").unlink()
    journal, recovered = Journal.open(disk / "journal")
    assert recovered.records == []
    journal.close()
