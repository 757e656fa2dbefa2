"""Files of a read model that are damaged, of another version or broker, or that nobody closed."""

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.live.readmodel import schema
from hanse.live.readmodel.read_model import ReadModel
from tests.live.readmodel.histories import EPOCH
from tests.live.readmodel.test_read_model import Script


@pytest.fixture
def reads(tmp_path: Path) -> Iterator[ReadModel]:
    found = ReadModel(tmp_path / "reads.sqlite", "b1", kept_jobs_max=10)
    yield found
    found.close()


@pytest.fixture
def script() -> Script:
    return Script()


def spoil_version(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def spoil_header(path: Path) -> None:
    path.write_bytes(b"not a database at all, but long enough to be looked at" * 50)


def spoil_pages(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET shut = 0")
    connection.commit()
    connection.close()
    whole = bytearray(path.read_bytes())
    whole[2 * 4096 : 6 * 4096] = b"\xff" * 4 * 4096
    path.write_bytes(whole)


def spoil_emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("spoil", [spoil_version, spoil_header, spoil_pages, spoil_emptied])
def test_a_file_of_another_version_or_a_damaged_one_is_set_aside(
    spoil: object, tmp_path: Path, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "reads.sqlite"
    for serial in range(30):
        script.whole(serial)
    first = ReadModel(path, "b1")
    first.apply(script.steps, EPOCH)
    before = schema.dump_content(path)
    first.close()
    spoil(path)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        again = ReadModel(path, "b1")
    assert again.applied == 0
    assert again.jobs() == []
    assert path.with_name(path.name + schema.ASIDE_SUFFIX).exists()
    assert "is rebuilt" in caplog.text
    again.apply(script.steps, EPOCH)
    again.close()
    assert schema.dump_content(path) == before


def test_another_brokers_file_is_set_aside(tmp_path: Path, script: Script) -> None:
    path = tmp_path / "reads.sqlite"
    script.whole(0)
    first = ReadModel(path, "b1")
    first.apply(script.steps, EPOCH)
    first.close()
    other = ReadModel(path, "b2")
    assert other.jobs() == []
    other.close()


def test_a_file_that_nobody_closed_is_taken_up_where_it_was(tmp_path: Path, script: Script) -> None:
    path = tmp_path / "reads.sqlite"
    script.whole(0)
    script.submit(1)
    first = ReadModel(path, "b1")
    first.apply(script.steps, EPOCH)
    second = ReadModel(path, "b1")  # as after a kill: the first one never closed
    assert second.applied == len(script.steps)
    assert [row.state for row in second.jobs()] == ["queued", "succeeded"]
    second.close()
    first.close()
