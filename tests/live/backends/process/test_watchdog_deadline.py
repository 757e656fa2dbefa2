"""The memory that watchdogs look at, over restarts of the daemon and of the machine."""

from pathlib import Path

import pytest

from hanse.live.backends.process import watchdog_deadline
from hanse.live.backends.process.watchdog_deadline import DEADLINE_FORMAT, GUARD_AT, open_watchdog_memory

UNTIL = 123_456_789


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that names this boot of the machine."""
    path = tmp_path / "boot_id"
    path.write_bytes(b"5b3e5a6e-0000-4000-8000-000000000001\n")
    monkeypatch.setattr(watchdog_deadline, "_BOOT_ID", path)
    return path


def deadline(path: Path) -> int:
    """The end of the lease, as a daemon that starts finds it."""
    with open_watchdog_memory(path) as memory:
        (found,) = DEADLINE_FORMAT.unpack_from(memory, GUARD_AT)
    assert isinstance(found, int)
    return found


def test_a_lease_outlives_the_daemon_that_had_it(tmp_path: Path, boot: Path) -> None:
    with open_watchdog_memory(tmp_path / "guard") as memory:
        DEADLINE_FORMAT.pack_into(memory, GUARD_AT, UNTIL)
    assert deadline(tmp_path / "guard") == UNTIL


def test_a_lease_does_not_outlive_the_boot_of_the_machine(tmp_path: Path, boot: Path) -> None:
    with open_watchdog_memory(tmp_path / "guard") as memory:
        DEADLINE_FORMAT.pack_into(memory, GUARD_AT, UNTIL)
    boot.write_bytes(b"5b3e5a6e-0000-4000-8000-000000000002\n")
    assert deadline(tmp_path / "guard") == 0
    assert deadline(tmp_path / "guard") == 0, "and stays so"
