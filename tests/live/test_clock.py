"""A member's clock: continuous over restarts, never behind its own journal."""

from pathlib import Path

import msgspec

from hanse.live.clock import Clock
from hanse.security.wall_time import wall_now

DAY = 86_400 * 1_000_000


def test_a_restart_of_the_process_changes_nothing(tmp_path: Path) -> None:
    first = Clock.resume(tmp_path / "clock.json", 0, 0)
    before = first.now()
    again = Clock.resume(tmp_path / "clock.json", before, wall_now())
    assert again.offset == first.offset
    assert again.now() >= before


def test_a_restart_of_the_machine_goes_on_from_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    path.write_bytes(msgspec.json.encode({"boot": "another boot", "offset": 7}))
    clock = Clock.resume(path, 5 * DAY, wall_now() - DAY)
    assert 6 * DAY <= clock.now() < 6 * DAY + 60_000_000


def test_a_wall_clock_set_back_does_not_turn_time_back(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    path.write_bytes(msgspec.json.encode({"boot": "another boot", "offset": 7}))
    assert Clock.resume(path, 5 * DAY, wall_now() + DAY).now() >= 5 * DAY


def test_a_journal_ahead_of_the_clock_pulls_it_forward(tmp_path: Path) -> None:
    clock = Clock.resume(tmp_path / "clock.json", 0, 0)
    ahead = clock.now() + DAY
    assert Clock.resume(tmp_path / "clock.json", ahead, wall_now()).now() >= ahead


def test_a_damaged_memory_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    path.write_text("{", encoding="utf-8")
    assert Clock.resume(path, 3 * DAY, 0).now() >= 3 * DAY


def test_instants_translate_to_the_clock_that_every_process_reads() -> None:
    clock = Clock(offset=123)
    assert clock.to_boottime(1_000) == 877
