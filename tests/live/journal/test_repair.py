"""A repair keeps what is certainly right, throws nothing away, and says what is lost."""

import random
from pathlib import Path

import pytest

from hanse.live.journal import CorruptJournal, Journal, JournalInUse, layout, read_history
from hanse.live.journal.files import list_files
from hanse.live.journal.layout import SECTOR
from hanse.live.journal.repair import RepairReport, repair, verify

from .crashing import CrashDisk, PowerCut
from .damage import committed_bytes, files, lay_out, records, small


def with_snapshots(
    directory: Path, at: tuple[int, ...] = (12, 24), *, retain_bytes: int = 1 << 20
) -> list[bytes]:
    """Forty records in groups of three, in segments of 4 KiB, with snapshots."""
    made = records(40)
    journal, _ = Journal.open(directory, segment_bytes=4096, retain_bytes=retain_bytes)
    for number, record in enumerate(made, 1):
        journal.append(record)
        if number % 3 == 0:
            journal.commit()
        if number in at:
            journal.snapshot(number, b"state %d" % number)
    journal.close()
    return made


def spoil(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


def block_of(directory: Path, number: int) -> tuple[Path, int, layout.Header]:
    """The file, offset and header of the block that holds a record."""
    for _, path in list_files(directory).segments:
        data = path.read_bytes()
        offset = 0
        while (head := layout.decode_header(data[offset : offset + SECTOR])) is not None:
            if head.first <= number < head.first + head.count:
                return path, offset, head
            offset += head.byte_count
    raise AssertionError("no such record")


def check_usable(directory: Path, made: list[bytes], report: RepairReport) -> None:
    """What was kept is as it was written, and the journal takes records again."""
    assert verify(directory).problem is None
    past = read_history(directory)
    assert list(past.records) == [
        (number, made[number - 1]) for number in range(past.position + 1, report.last + 1)
    ]
    journal, recovered = Journal.open(directory, segment_bytes=4096)
    assert journal.position == report.last
    if recovered.snapshot is not None:
        assert recovered.snapshot == b"state %d" % recovered.snapshot_position
    assert recovered.records == made[recovered.snapshot_position : report.last]
    journal.append(b"after the repair")
    assert journal.commit() == report.last + 1
    journal.close()
    assert verify(directory).problem is None


def all_bytes_of(directory: Path) -> dict[str, bytes]:
    """Everything in the directory and in what was moved aside, newest place last."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(directory))] = path.read_bytes()
    return found


def test_a_sound_journal_is_left_alone(tmp_path: Path) -> None:
    with_snapshots(tmp_path)
    before = files(tmp_path)
    verdict = verify(tmp_path)
    assert (verdict.problem, verdict.records, verdict.snapshots, verdict.torn) == (None, 40, 2, 0)
    assert verdict.segments == len(list_files(tmp_path).segments)
    report = repair(tmp_path)
    assert (report.kept, report.lost, report.moved, report.last) == ((1, 40), None, (), 40)
    assert {**files(tmp_path), "lock": b""} == {**before, "lock": b""}


def test_a_torn_tail_is_no_problem(tmp_path: Path) -> None:
    small(tmp_path, count=6, closed=False)
    path = max(tmp_path.glob("*.seg"))
    data = path.read_bytes()
    end = committed_bytes(data)
    path.write_bytes(data[: end - SECTOR] + bytes(len(data) - end + SECTOR))
    verdict = verify(tmp_path)
    assert verdict.problem is None
    assert verdict.last == 3
    assert repair(tmp_path).moved == ()


def test_the_longest_prefix_is_kept_and_the_rest_is_set_aside(tmp_path: Path) -> None:
    made = small(tmp_path)
    path, offset, head = block_of(tmp_path, 20)
    spoil(path, offset + 200)
    before = files(tmp_path)
    verdict = verify(tmp_path)
    assert verdict.problem is not None
    assert (verdict.problem.file, verdict.problem.offset) == (path.name, offset)
    assert (verdict.first, verdict.last) == (1, head.first - 1)
    report = repair(tmp_path)
    assert report.kept == (1, head.first - 1)
    assert report.lost == (head.first, 40)
    assert not report.lost_open
    assert report.moved_to == "damaged-1"
    aside = files(tmp_path / "damaged-1")
    assert set(aside) == set(report.moved)
    assert all(aside[name] == before[name] for name in aside)
    assert set(before) - {"lock"} <= set(aside) | set(files(tmp_path))
    check_usable(tmp_path, made, report)


def test_the_last_block_damaged_loses_exactly_its_records(tmp_path: Path) -> None:
    made = small(tmp_path, count=39, closed=False)
    path, offset, _ = block_of(tmp_path, 39)
    spoil(path, offset + 300)
    report = repair(tmp_path)
    assert (report.last, report.lost, report.lost_open) == (36, (37, 39), False)
    check_usable(tmp_path, made, report)


def test_an_unreadable_end_is_said_to_be_open(tmp_path: Path) -> None:
    made = small(tmp_path, count=39, closed=False)
    path, offset, _ = block_of(tmp_path, 39)
    spoil(path, offset + 20)
    report = repair(tmp_path)
    assert (report.last, report.lost, report.lost_open) == (36, None, True)
    check_usable(tmp_path, made, report)


def test_damage_before_a_snapshot_costs_history_and_not_state(tmp_path: Path) -> None:
    made = with_snapshots(tmp_path)
    path, offset, _ = block_of(tmp_path, 5)
    spoil(path, offset + 200)
    report = repair(tmp_path)
    assert (report.last, report.lost) == (40, None)
    assert report.snapshot == 12
    assert report.history_lost is not None
    assert report.history_lost[0] == 1
    assert 6 <= report.history_lost[1] <= 12
    assert report.kept == (report.history_lost[1] + 1, 40)
    check_usable(tmp_path, made, report)


def test_a_damaged_newest_snapshot_is_replaced_by_an_older_one(tmp_path: Path) -> None:
    made = with_snapshots(tmp_path, retain_bytes=0)
    newest = tmp_path / f"{24:020d}.snap"
    spoil(newest, newest.stat().st_size - 1)
    with pytest.raises(CorruptJournal, match="complete from snapshot 12 to record 40"):
        Journal.open(tmp_path)
    report = repair(tmp_path)
    assert (report.last, report.lost, report.snapshot) == (40, None, 12)
    assert report.moved_to
    assert (tmp_path / report.moved_to / newest.name).exists()
    check_usable(tmp_path, made, report)


def test_a_lost_newest_snapshot_is_made_up_for_too(tmp_path: Path) -> None:
    made = with_snapshots(tmp_path, retain_bytes=0)
    (tmp_path / f"{24:020d}.snap").unlink()
    with pytest.raises(CorruptJournal):
        Journal.open(tmp_path)
    report = repair(tmp_path)
    assert (report.last, report.lost, report.snapshot) == (40, None, 12)
    check_usable(tmp_path, made, report)


def test_a_lost_oldest_snapshot_is_noticed_and_made_up_for(tmp_path: Path) -> None:
    made = with_snapshots(tmp_path, retain_bytes=0)
    (tmp_path / f"{12:020d}.snap").unlink()
    with pytest.raises(CorruptJournal, match="a snapshot is missing"):
        Journal.open(tmp_path)
    report = repair(tmp_path)
    assert (report.last, report.lost, report.snapshot) == (40, None, 24)
    check_usable(tmp_path, made, report)


def test_only_a_snapshot_left_is_enough_to_go_on(tmp_path: Path) -> None:
    made = with_snapshots(tmp_path)
    for path in tmp_path.glob("*.seg"):
        path.unlink()
    report = repair(tmp_path)
    assert (report.last, report.kept, report.snapshot, report.lost_open) == (24, None, 24, True)
    check_usable(tmp_path, made, report)


def test_nothing_to_begin_with_is_said_plainly(tmp_path: Path) -> None:
    made = with_snapshots(tmp_path, (12, 24), retain_bytes=0)
    for path in tmp_path.glob("*.snap"):
        spoil(path, 3)
    report = repair(tmp_path)
    assert (report.last, report.kept, report.snapshot, report.lost) == (0, None, None, (1, 40))
    assert any(name.endswith(".seg") for name in report.moved)
    check_usable(tmp_path, made, report)


def test_a_lost_identity_is_found_again_in_the_blocks(tmp_path: Path) -> None:
    made = with_snapshots(tmp_path)
    (tmp_path / "journal").unlink()
    report = repair(tmp_path)
    assert (report.last, report.lost, report.kept) == (40, None, (1, 40))
    check_usable(tmp_path, made, report)


def test_a_live_journal_can_be_verified_and_not_repaired(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    journal.append(b"one")
    journal.commit()
    verdict = verify(tmp_path)
    assert (verdict.live, verdict.problem, verdict.records) == (True, None, 1)
    with pytest.raises(JournalInUse):
        repair(tmp_path)
    journal.close()


def test_any_damage_can_be_repaired_and_no_kept_record_is_wrong(tmp_path: Path) -> None:
    """Draws of damage: flips, bursts, cuts, missing files, several at once."""
    made = with_snapshots(tmp_path / "whole")
    whole = files(tmp_path / "whole")
    names = [name for name in whole if name != "lock"]
    draw = random.Random(3)
    for turn in range(150):
        content = dict(whole)
        for _ in range(draw.randrange(1, 4)):
            name = draw.choice(names)
            data = bytearray(content.get(name, b""))
            kind = draw.choice(["flip", "burst", "cut", "missing"])
            if kind == "missing":
                content.pop(name, None)
                continue
            at = draw.randrange(len(data)) if data else 0
            if kind == "cut":
                del data[at:]
            elif data:
                length = 1 if kind == "flip" else draw.randrange(2, 900)
                data[at : at + length] = draw.randbytes(len(data[at : at + length]))
            content[name] = bytes(data)
        directory = tmp_path / str(turn)
        lay_out(directory, content)
        if not any(name != "lock" for name in content):
            continue
        before = set(files(directory).values())
        report = repair(directory)
        after = set(all_bytes_of(directory).values())
        changed = [data for data in before - after if data != content.get("lock")]
        assert changed == [], "a repair threw something away"
        check_usable(directory, made, report)


def test_an_interrupted_repair_can_be_finished(tmp_path: Path) -> None:
    """The power fails before every single step of it; the next repair gives the same journal."""
    made = with_snapshots(tmp_path / "whole")
    path, offset, head = block_of(tmp_path / "whole", 30)
    spoil(path, offset + 200)
    whole = files(tmp_path / "whole")
    fuse, resumed, finished = 0, 0, False
    while not finished:
        directory = tmp_path / f"cut-{fuse}"
        lay_out(directory, whole)
        disk = InterruptedDisk(directory)
        disk.fuse = fuse
        try:
            report = repair(directory, disk=disk)
            finished = True
        except PowerCut:
            if verify(directory).problem is None:
                assert not (directory / "repairing").exists(), "usable only when the last step is done"
                report = repair(directory)
                assert report.moved == ()
            else:
                with pytest.raises(CorruptJournal):
                    Journal.open(directory)
                report = repair(directory)
                assert report.lost == (head.first, 40)
                resumed += 1
        assert report.last == head.first - 1
        assert whole[path.name] in all_bytes_of(directory).values()
        check_usable(directory, made, report)
        assert not (directory / "repairing").exists()
        fuse += 1
    assert resumed > 10


class InterruptedDisk(CrashDisk):
    """Stops at any step; everything done before it stays."""

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        source.replace(target)

    def unlink(self, path: Path) -> None:
        self._step()
        path.unlink()
