"""What stays when snapshots make the past superfluous."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.live.journal import History, Journal, NotRetained, read_history, read_records
from hanse.live.journal.files import list_files
from hanse.live.journal.retention import plan_retention
from hanse.live.journal.survey import Segment

from .crashing import CrashDisk, PowerCut
from .damage import files, lay_out


def state(position: int) -> bytes:
    return b"state %d " % position * 20


def long_journal(directory: Path, retain_bytes: int) -> list[bytes]:
    """300 records in segments of 8 KiB, a snapshot after every thirty."""
    made = [b"record %d " % number * 25 for number in range(1, 301)]
    journal, _ = Journal.open(directory, segment_bytes=8192, retain_bytes=retain_bytes)
    for number, record in enumerate(made, 1):
        journal.append(record)
        if number % 3 == 0:
            journal.commit()
        if number % 30 == 0:
            journal.snapshot(number, state(number))
    journal.close()
    return made


def old_bytes(directory: Path) -> int:
    """Bytes of what the newest snapshot makes superfluous."""
    found = list_files(directory)
    newest = found.snapshots[-1][0]
    segments = [
        path
        for (_, path), (after, _) in zip(found.segments, found.segments[1:], strict=False)
        if after <= newest + 1
    ]
    return sum(path.stat().st_size for path in [*segments, *(path for _, path in found.snapshots[:-1])])


def test_without_a_budget_one_older_snapshot_stays_with_all_after_it(tmp_path: Path) -> None:
    made = long_journal(tmp_path, 0)
    assert [position for position, _ in list_files(tmp_path).snapshots] == [270, 300]
    past = read_history(tmp_path)
    assert (past.snapshot, past.position) == (state(270), 270)
    assert list(past.records) == [(number, made[number - 1]) for number in range(271, 301)]


def test_the_budget_is_used_and_kept(tmp_path: Path) -> None:
    made = long_journal(tmp_path, 60_000)
    assert 30_000 < old_bytes(tmp_path) <= 60_000
    past = read_history(tmp_path)
    assert 0 < past.position < 270
    assert past.snapshot == state(past.position)
    assert [record for _, record in past.records] == made[past.position :]


def test_with_a_large_budget_everything_stays(tmp_path: Path) -> None:
    made = long_journal(tmp_path, 1 << 30)
    past = read_history(tmp_path)
    assert (past.snapshot, past.position) == (None, 0)
    assert [record for _, record in past.records] == made
    assert len(list_files(tmp_path).snapshots) == 10


def test_what_is_no_longer_there_is_refused_by_number(tmp_path: Path) -> None:
    made = long_journal(tmp_path, 0)
    oldest = list_files(tmp_path).segments[0][0]
    with pytest.raises(NotRetained) as told:
        read_records(tmp_path, oldest - 2)
    assert told.value.oldest == oldest
    assert next(read_records(tmp_path, oldest - 1)) == (oldest, made[oldest - 1])


def test_retention_goes_on_after_a_restart(tmp_path: Path) -> None:
    long_journal(tmp_path, 0)
    for position in (301, 302, 303):
        journal, recovered = Journal.open(tmp_path, segment_bytes=8192, retain_bytes=0)
        assert recovered.snapshot == state(position - 1)
        assert recovered.records == []
        journal.append(b"more")
        journal.commit()
        journal.snapshot(position, state(position))
        journal.close()
    assert [position for position, _ in list_files(tmp_path).snapshots] == [302, 303]


def history_after_opening(directory: Path) -> History:
    journal, _ = Journal.open(directory)
    journal.close()
    return read_history(directory)


def test_an_interrupted_drop_is_finished_by_the_next_opening(tmp_path: Path) -> None:
    made = long_journal(tmp_path / "whole", 1 << 30)
    whole = files(tmp_path / "whole")
    finished = False
    fuse = 0
    while not finished:
        lay_out(tmp_path / "cut", whole)
        disk = CrashDisk(tmp_path / "cut")
        journal, _ = Journal.open(tmp_path / "cut", segment_bytes=8192, retain_bytes=0, disk=disk)
        disk.fuse = fuse
        try:
            journal.snapshot(300, state(300))
            finished = True
        except PowerCut:
            pass
        disk.fuse = None
        for seed in range(12):
            lay_out(tmp_path / "lost", disk.image(random.Random(seed)))
            past = history_after_opening(tmp_path / "lost")
            assert past.position in (0, *range(30, 301, 30))
            assert past.snapshot in (None, state(past.position))
            assert [record for _, record in past.records] == made[past.position :]
        journal.close()
        journal, recovered = Journal.open(tmp_path / "cut")
        assert (recovered.snapshot, recovered.snapshot_position) == (state(300), 300)
        journal.close()
        past = read_history(tmp_path / "cut")
        assert [record for _, record in past.records] == made[past.position :]
        fuse += 1
    assert fuse > 20
    assert [position for position, _ in list_files(tmp_path / "cut").snapshots] == [270, 300]


@given(
    gaps=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    size=st.integers(1, 50),
    taken=st.lists(st.integers(0, 100), max_size=6),
    retain=st.integers(0, 500),
)
def test_the_plan_always_leaves_a_way_back(gaps: list[int], size: int, taken: list[int], retain: int) -> None:
    """From the floor on everything is there, one older beginning stays, and no more than that over budget."""
    firsts = [1]
    for gap in gaps:
        firsts.append(firsts[-1] + gap)
    segments = [Segment(first, b"%d" % first, 1) for first in firsts]
    durable = firsts[-1] + 3
    snapshots = {position: size for position in sorted(taken) if position <= durable}
    kept = plan_retention(segments, [size] * len(segments), snapshots, durable, retain)
    left = [position for position in snapshots if position not in kept.snapshots]
    assert kept.floor.segment == segments[kept.segments].first
    older = [position for position in left if position < durable]
    over_budget = size * (len(older) + len(segments) - 1 - kept.segments) > retain
    if over_budget:
        assert len(older) <= 1
    if older:
        assert kept.floor.segment <= min(older) + 1 or kept.segments == 0
    else:
        assert kept.segments == 0
    if over_budget and older:
        following = [segment.first - 1 for segment in segments[kept.segments + 1 :]]
        assert all(end > older[0] for end in following), "a segment stays that nothing needs"
    assert kept.floor.snapshot == min([*older, durable])
