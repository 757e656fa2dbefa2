"""Members that restart by themselves."""

import errno
import sqlite3
from collections.abc import Callable

import pytest

from hanse.cli.commands.daemons import serve_again
from hanse.live.disk_space import is_out_of_space
from hanse.live.journal.errors import JournalError


def steps(*what: bool | Exception) -> tuple[Callable[[], bool], list[bool | Exception]]:
    """A member that does one of these at each start, and those that it has not done yet."""
    left = list(what)

    def serve() -> bool:
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    return serve, left


def full_journal() -> JournalError:
    error = JournalError("the journal cannot be opened")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    return error


def test_a_full_disk_only_delays_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    serve, left = steps(True, full, full, full_journal(), OSError(errno.EDQUOT, "Quota"), True, False)
    with caplog.at_level("WARNING"):
        serve_again(serve, "north", pause=0.0)
    assert left == []
    assert [record.message for record in caplog.records] == [
        f"north waits with its restart: there is no space on its disk ({full})"
    ]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), JournalError("damaged")])
def test_other_errors_end_the_member(error: Exception) -> None:
    serve, left = steps(True, error, False)
    with pytest.raises(type(error)):
        serve_again(serve, "north", pause=0.0)
    assert left == [False]


def test_a_full_disk_is_seen_behind_the_read_model_too() -> None:
    with sqlite3.connect(":memory:") as store:
        store.execute("pragma max_page_count = 2")
        store.execute("create table a (b blob)")
        with pytest.raises(sqlite3.Error) as caught:
            store.execute("insert into a values (zeroblob(1000000))")
    assert is_out_of_space(caught.value)
    assert not is_out_of_space(sqlite3.OperationalError("no such table"))
