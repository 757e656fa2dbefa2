"""Journals to be damaged, and what they must then still say."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hanse.live.journal import CorruptJournal, Journal, read_history
from hanse.live.journal.layout import SECTOR, decode_header
from hanse.live.journal.survey import Survey


def records(count: int) -> list[bytes]:
    """Some of them with long runs of zeros, some empty, some that look like a block's beginning."""
    shapes = [b"%d", b"", b"%d" + bytes(700), b"HanseBlk%d", b"%d" * 60]
    return [shapes[number % 5].replace(b"%d", b"%d" % number) for number in range(count)]


def small(directory: Path, *, count: int = 40, group: int = 3, closed: bool = True) -> list[bytes]:
    """A journal of a few segments of 4 KiB; its records."""
    journal, _ = Journal.open(directory, segment_bytes=4096)
    made = records(count)
    for number, record in enumerate(made, 1):
        journal.append(record)
        if number % group == 0:
            journal.commit()
    if not closed:
        journal._segments._closed = True
    journal.close()
    return made


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def lay_out(directory: Path, content: dict[str, bytes]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for name, data in content.items():
        (directory / name).write_bytes(data)


def outcome(directory: Path) -> list[bytes] | CorruptJournal:
    """All that the journal says, from its oldest snapshot on; or its refusal."""
    before = files(directory)
    try:
        journal, recovered = Journal.open(directory)
    except CorruptJournal as refused:
        after = files(directory)
        assert {**after, "lock": b""} == {**before, "lock": b""}, "a refusal must not change anything"
        return refused
    journal.close()
    past = read_history(directory)
    told = [record for _, record in past.records]
    assert told[len(told) - len(recovered.records) :] == recovered.records
    return told


def judged(directory: Path) -> Survey | CorruptJournal:
    """What a look at the files finds; nothing is changed."""
    survey = Survey(directory)
    try:
        survey.run()
    except CorruptJournal as found:
        return found
    return survey


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """One bit of a file is wrong for a while."""
    for done in (False, True):
        with path.open("r+b") as file:
            file.seek(bit // 8)
            (byte,) = file.read(1)
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))
        if not done:
            yield


def committed_bytes(data: bytes) -> int:
    """Where the last block of a segment ends."""
    offset = 0
    while (head := decode_header(data[offset : offset + SECTOR])) is not None:
        offset += head.byte_count
    return offset
