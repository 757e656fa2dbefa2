"""Every change that no crash can make is noticed; every state that a crash can leave is taken."""

import os
import random
import zlib
from pathlib import Path

import pytest

from hanse.live.journal import CorruptJournal, Journal, UnknownFormat, layout, read_records
from hanse.live.journal.layout import SECTOR
from hanse.live.journal.repair import verify
from hanse.live.journal.segment_walk import ChainTip, RetryingWalk

from .damage import committed_bytes, files, flipped, judged, lay_out, outcome, records, small


@pytest.mark.parametrize("closed", [True, False])
def test_every_flipped_bit_in_a_committed_block_is_noticed(tmp_path: Path, closed: bool) -> None:
    """Not a sample: every byte of every block, marker and padding, each with one of its bits."""
    made = small(tmp_path / "whole", closed=closed)
    whole = files(tmp_path / "whole")
    assert sum(name.endswith(".seg") for name in whole) >= 3
    flips = 0
    for name, data in whole.items():
        if not name.endswith(".seg") and name != "journal":
            continue
        end = committed_bytes(data) if name.endswith(".seg") else len(data)
        for offset in range(end):
            with flipped(tmp_path / "whole" / name, offset * 8 + offset * 5 % 8):
                assert isinstance(judged(tmp_path / "whole"), CorruptJournal), f"{name} at {offset}"
            flips += 1
    assert flips > 8000
    assert outcome(tmp_path / "whole") == made


def test_every_bit_of_a_small_block_is_guarded(tmp_path: Path) -> None:
    """All eight bits of every byte, of the last block and its header, the hardest to tell from a tear."""
    small(tmp_path, count=4, group=4, closed=False)
    path = tmp_path / f"{1:020d}.seg"
    for bit in range(committed_bytes(path.read_bytes()) * 8):
        with flipped(path, bit):
            assert isinstance(judged(tmp_path), CorruptJournal), f"bit {bit}"


def test_a_forged_block_with_right_checksums_is_noticed_by_its_hash() -> None:
    whole = {"allocated": 4096, "journal": bytes(16), "previous": bytes(32)}
    genuine, chain = layout.encode_block(layout.BlockKind.RECORDS, 1, [b"mine"], **whole)  # type: ignore[arg-type]
    forged, _ = layout.encode_block(layout.BlockKind.RECORDS, 1, [b"thine"[:4]], **whole)  # type: ignore[arg-type]
    fields = list(layout._HEADER.unpack_from(forged))
    fields[-3] = chain  # the hash of what stood there before
    head = layout._HEADER.pack(*fields)[:-4]
    forged = head + zlib.crc32(head).to_bytes(4, "little") + forged[layout.HEADER_BYTES :]
    for block, payload in ((genuine, True), (forged, False)):
        found = layout.decode_header(block[:SECTOR])
        assert found is not None
        assert (layout.decode_body(block, found) is not None) is payload


def test_what_a_torn_block_leaves_does_not_stand_behind_the_next_one(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path)
    journal.append(b"one")
    journal.commit()
    begin = journal._segments._offset
    journal.append(b"." * 3_000)
    journal.commit()
    journal._segments._closed = True
    journal.close()
    path = tmp_path / f"{1:020d}.seg"
    with path.open("r+b") as file:  # a power cut: the first sector of the last block was never written
        file.seek(begin)
        file.write(bytes(SECTOR))
    journal, recovered = Journal.open(tmp_path)
    assert recovered.records == [b"one"]
    assert recovered.cut_bytes > 3_000
    journal.append(b"two")
    journal.commit()
    journal.close()
    journal, recovered = Journal.open(tmp_path)
    assert recovered.records == [b"one", b"two"]
    journal.close()


def test_flips_behind_the_last_block_cost_no_record(tmp_path: Path) -> None:
    made = small(tmp_path, closed=False)
    path = max(tmp_path.glob("*.seg"))
    data = path.read_bytes()
    refused = 0
    for offset in range(committed_bytes(data), len(data)):
        with flipped(path, offset * 8 + 4):
            found = judged(tmp_path)
        refused += isinstance(found, CorruptJournal)
        assert isinstance(found, CorruptJournal) or found.records == made
    assert refused == SECTOR  # those where the next block's header would be: a tear cannot look so


@pytest.mark.parametrize("closed", [True, False])
def test_every_truncation_is_noticed_or_harmless(tmp_path: Path, closed: bool) -> None:
    made = small(tmp_path / "whole", count=16, closed=closed)
    whole = files(tmp_path / "whole")
    for name, data in whole.items():
        if name == "lock":
            continue
        for size in reversed(range(len(data))):
            os.truncate(tmp_path / "whole" / name, size)
            found = judged(tmp_path / "whole")
            assert isinstance(found, CorruptJournal), f"{name} cut to {size} of {len(data)}"
        (tmp_path / "whole" / name).write_bytes(data)
    assert outcome(tmp_path / "whole") == made


def test_a_missing_file_is_noticed(tmp_path: Path) -> None:
    small(tmp_path / "whole")
    whole = files(tmp_path / "whole")
    for name in whole:
        if name != "lock":
            lay_out(tmp_path / "broken", {other: data for other, data in whole.items() if other != name})
            assert isinstance(outcome(tmp_path / "broken"), CorruptJournal), name


def test_blocks_that_changed_places_are_noticed(tmp_path: Path) -> None:
    small(tmp_path / "whole", count=3, group=1)
    whole = files(tmp_path / "whole")
    name = f"{1:020d}.seg"
    data = whole[name]
    first, second = data[:SECTOR], data[SECTOR : 2 * SECTOR]
    lay_out(tmp_path / "broken", {**whole, name: second + first + data[2 * SECTOR :]})
    found = outcome(tmp_path / "broken")
    assert isinstance(found, CorruptJournal)
    assert found.offset == 0
    assert found.last_good == 0


def test_a_forged_record_breaks_the_chain(tmp_path: Path) -> None:
    """Whoever rewrites a block with all its checksums must rewrite every block behind it too."""
    small(tmp_path / "whole", count=9, group=3)
    whole = files(tmp_path / "whole")
    name = f"{1:020d}.seg"
    head = layout.decode_header(whole[name][:SECTOR])
    assert head is not None
    forged, _ = layout.encode_block(
        layout.BlockKind.RECORDS,
        1,
        [b"9", *records(3)[1:]],
        allocated=head.allocated,
        journal=head.journal,
        previous=head.previous,
    )
    assert len(forged) == head.byte_count
    lay_out(tmp_path / "broken", {**whole, name: forged + whole[name][len(forged) :]})
    found = outcome(tmp_path / "broken")
    assert isinstance(found, CorruptJournal)
    assert "chain" in found.what
    assert (found.offset, found.first_good, found.last_good) == (head.byte_count, 1, 3)


def test_a_segment_of_another_journal_is_noticed(tmp_path: Path) -> None:
    small(tmp_path / "one")
    small(tmp_path / "two")
    one, two = files(tmp_path / "one"), files(tmp_path / "two")
    last = max(name for name in one if name.endswith(".seg"))
    lay_out(tmp_path / "broken", {**one, last: two[last]})
    found = outcome(tmp_path / "broken")
    assert isinstance(found, CorruptJournal)
    assert "another journal" in found.what


def test_every_torn_last_block_is_cut_and_what_was_before_stays(tmp_path: Path) -> None:
    """Any of its sectors may be missing, in any combination, the header's included."""
    made = small(tmp_path / "whole", count=4, group=4, closed=False)
    journal, _ = Journal.open(tmp_path / "whole", segment_bytes=4096)
    journal.append(bytes(900))
    journal.append(b"end" * 300)
    journal.commit()
    journal._segments._closed = True
    journal.close()
    whole = files(tmp_path / "whole")
    name = f"{1:020d}.seg"
    begin, end = committed_bytes(whole[name]) - 4 * SECTOR, committed_bytes(whole[name])
    for missing in range(1, 16):
        torn = bytearray(whole[name])
        for sector in range(4):
            if missing >> sector & 1:
                torn[begin + sector * SECTOR : begin + (sector + 1) * SECTOR] = bytes(SECTOR)
        lay_out(tmp_path / "broken", {**whole, name: bytes(torn)})
        assert verify(tmp_path / "broken").problem is None
        journal, recovered = Journal.open(tmp_path / "broken")
        last_left = max((sector for sector in range(4) if not missing >> sector & 1), default=-1)
        assert recovered.records == made
        assert recovered.cut_bytes == (last_left + 1) * SECTOR
        journal.append(b"new")
        journal.close()
        assert outcome(tmp_path / "broken") == [*made, b"new"]
        assert len(torn) >= end


def test_a_tear_before_an_intact_block_is_damage(tmp_path: Path) -> None:
    small(tmp_path / "whole", count=24, closed=False)
    whole = files(tmp_path / "whole")
    for name in whole:
        if name.endswith(".seg"):
            offset, last = 0, committed_bytes(whole[name])
            while (head := layout.decode_header(whole[name][offset : offset + SECTOR])) is not None:
                final = offset + head.byte_count == last and name == max(
                    n for n in whole if n.endswith(".seg")
                )
                for sector in range(offset, offset + head.byte_count, SECTOR):
                    torn = whole[name][:sector] + bytes(SECTOR) + whole[name][sector + SECTOR :]
                    lay_out(tmp_path / "broken", {**whole, name: torn})
                    assert isinstance(outcome(tmp_path / "broken"), CorruptJournal) != final
                offset += head.byte_count


def test_after_a_good_end_even_missing_sectors_are_damage(tmp_path: Path) -> None:
    small(tmp_path / "whole", count=3, group=3)
    whole = files(tmp_path / "whole")
    name = f"{1:020d}.seg"
    lay_out(tmp_path / "broken", {**whole, name: bytes(SECTOR) + whole[name][SECTOR:]})
    assert isinstance(outcome(tmp_path / "broken"), CorruptJournal)


def test_a_later_format_is_named_and_not_called_damage(tmp_path: Path) -> None:
    small(tmp_path, count=3)
    path = tmp_path / "journal"
    data = bytearray(path.read_bytes())
    data[8] = 2
    data[-4:] = zlib.crc32(bytes(data[:-4])).to_bytes(4, "little")
    path.write_bytes(bytes(data))
    with pytest.raises(UnknownFormat, match="format 2"):
        Journal.open(tmp_path)


def test_readers_refuse_damage_too(tmp_path: Path) -> None:
    small(tmp_path)
    path = tmp_path / f"{1:020d}.seg"
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptJournal):
        list(read_records(tmp_path))


def test_damage_of_many_kinds_is_noticed(tmp_path: Path) -> None:
    """Bursts, swapped sectors, doubled sectors, zeroed stretches before the last block: 2,000 draws."""
    small(tmp_path / "whole", count=40)
    whole = files(tmp_path / "whole")
    names = [name for name in whole if name.endswith(".seg")]
    draw = random.Random(7)
    for _ in range(2000):
        name = draw.choice(names)
        data = bytearray(whole[name])
        # The last sector says that the end was good; as long as it stands nothing before it can be a tear.
        used = committed_bytes(whole[name]) - SECTOR
        begin = draw.randrange(used)
        length = min(draw.choice([1, 2, 16, 512, 1500]), used - begin)
        other = draw.randrange(used - length + 1)
        kind = draw.choice(["random", "zero", "copy", "invert"])
        data[begin : begin + length] = {
            "random": draw.randbytes(length),
            "zero": bytes(length),
            "copy": data[other : other + length],
            "invert": bytes(byte ^ 0xFF for byte in data[begin : begin + length]),
        }[kind]
        if data != whole[name]:
            (tmp_path / "whole" / name).write_bytes(data)
            assert isinstance(judged(tmp_path / "whole"), CorruptJournal), (name, begin, length, kind)
            (tmp_path / "whole" / name).write_bytes(whole[name])


def test_a_sector_that_is_neither_whole_nor_missing_is_damage(tmp_path: Path) -> None:
    """Half a sector of zeros beside a missing one: no tear looks so, even in the last block."""
    journal, _ = Journal.open(tmp_path)
    journal.append(b"a" * 1200)
    journal.commit()
    journal._segments._closed = True
    journal.close()
    path = tmp_path / f"{1:020d}.seg"
    data = path.read_bytes()
    assert committed_bytes(data) == 3 * SECTOR
    path.write_bytes(data[: 2 * SECTOR] + bytes(len(data) - 2 * SECTOR))
    assert not isinstance(judged(tmp_path), CorruptJournal)
    path.write_bytes(data[: 2 * SECTOR - 100] + bytes(len(data) - 2 * SECTOR + 100))
    assert isinstance(judged(tmp_path), CorruptJournal)


def test_a_cut_is_noticed_whatever_the_last_block_was(tmp_path: Path) -> None:
    """After every commit, also the first one in room just taken: every cut at the edge of a sector."""
    journal, _ = Journal.open(tmp_path / "live", segment_bytes=16 << 10)
    cuts = 0
    for number in range(1, 40):
        journal.append(b"%d" % number * 300)
        journal.commit()
        lay_out(tmp_path / "cut", files(tmp_path / "live"))
        path = max((tmp_path / "cut").glob("*.seg"))
        for size in reversed(range(0, path.stat().st_size, SECTOR)):
            os.truncate(path, size)
            assert isinstance(judged(tmp_path / "cut"), CorruptJournal), f"{path.name} cut to {size}"
            cuts += 1
    assert len(list((tmp_path / "live").glob("*.seg"))) > 1
    assert cuts > 300
    journal.close()


def test_a_tear_before_what_a_snapshot_has_seen_is_damage(tmp_path: Path) -> None:
    small(tmp_path, count=6, closed=False)
    journal, _ = Journal.open(tmp_path, segment_bytes=4096)
    journal.snapshot(6, b"state")
    journal._segments._closed = True
    journal.close()
    path = tmp_path / f"{1:020d}.seg"
    data = path.read_bytes()
    end = committed_bytes(data)
    path.write_bytes(data[: end - SECTOR] + bytes(len(data) - end + SECTOR))
    found = judged(tmp_path)
    assert isinstance(found, CorruptJournal)
    assert "before snapshot 6" in found.what
    assert found.last_good == 3


def first_blocks(path: Path) -> tuple[list[bytes], ChainTip]:
    """The blocks of a segment as raw bytes, and what its first block continues."""
    data = path.read_bytes()
    blocks, offset = [], 0
    while (head := layout.decode_header(data[offset : offset + SECTOR])) is not None:
        blocks.append(data[offset : offset + head.byte_count])
        link = ChainTip(head.journal, 1, layout.genesis_chain(head.journal), 0)
        offset += head.byte_count
    return blocks, link


def test_a_look_that_was_overtaken_by_the_writer_is_no_damage(tmp_path: Path) -> None:
    """1. A reader copies the place of block 2, still empty. 2. It is held up; the writer commits 2 and 3.
    3. The reader copies the place of block 3. The next look finds all of them."""
    small(tmp_path, count=6, group=1, closed=False)
    path = tmp_path / f"{1:020d}.seg"
    blocks, link = first_blocks(path)
    whole = path.read_bytes()
    path.write_bytes(blocks[0] + bytes(len(blocks[1])) + whole[len(blocks[0]) + len(blocks[1]) :])

    def writer() -> bool:
        path.write_bytes(whole)
        return True

    looks = RetryingWalk(path, link, writer)
    assert sum(1 for _ in looks) == len(blocks)
    assert not looks.is_damaged


def test_a_writer_at_work_does_not_excuse_damage_before_intact_blocks(tmp_path: Path) -> None:
    small(tmp_path, count=6, group=1, closed=False)
    path = tmp_path / f"{1:020d}.seg"
    blocks, link = first_blocks(path)
    with flipped(path, (len(blocks[0]) + 200) * 8):
        looks = RetryingWalk(path, link, lambda: True)
        assert sum(1 for _ in looks) == 1
        assert looks.is_damaged


def test_half_a_block_at_the_end_is_the_writers_or_damage(tmp_path: Path) -> None:
    """A look may see any part of what is just being written; a dead journal may not end so."""
    small(tmp_path, count=6, group=1, closed=False)
    path = tmp_path / f"{1:020d}.seg"
    blocks, link = first_blocks(path)
    end = sum(map(len, blocks))
    data = path.read_bytes()
    path.write_bytes(data[: end - 300] + bytes(len(data) - end + 300))
    for alive in (True, False):
        looks = RetryingWalk(path, link, lambda alive=alive: alive)  # type: ignore[misc]  # bound now, not later
        assert sum(1 for _ in looks) == len(blocks) - 1
        assert looks.is_damaged != alive
