"""What a member that comes back tells at level warning, and what its look at the wall clock does."""

import logging
import os
from pathlib import Path

import msgspec
import pytest

from hanse.live.config.config_history import CONFIG_HISTORY_FILE
from hanse.live.journal.layout import SECTOR
from hanse.live.recovery import CLOCK_FILE
from hanse.live.wall_clock_check import WallClockCheck
from hanse.model.ids import SECOND
from hanse.security.certificate_parser import Certificate
from hanse.security.wall_time import wall_now
from tests.live.config.test_config_history import busy, come_back, live, warden_of

HOUR = 3_600 * SECOND


@pytest.fixture
def member(tmp_path: Path) -> Path:
    """The directory of a warden that has lived a little."""
    league = busy("c1")
    live(tmp_path, warden_of(league), league.events)
    return tmp_path


def warnings_of(member: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What it tells when it comes back."""
    with caplog.at_level(logging.WARNING):
        come_back(member, warden_of(busy("c1")))
    return [one.message for one in caplog.records if one.levelno == logging.WARNING]


def segment(member: Path) -> Path:
    return max((member / "journal").glob("*.seg"))


def test_nothing_is_told_when_all_is_well(member: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(member, caplog) == []


def test_settings_that_are_gone_are_told(member: Path, caplog: pytest.LogCaptureFixture) -> None:
    (member / CONFIG_HISTORY_FILE).unlink()
    (said,) = warnings_of(member, caplog)
    assert f"{member / CONFIG_HISTORY_FILE} is missing" in said


def test_a_tail_that_was_cut_is_told(member: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = segment(member)
    data = path.read_bytes()
    used = -(-len(data.rstrip(b"\0")) // SECTOR) * SECTOR
    kept = used - 2 * SECTOR  # the last sector alone is a block of its own
    path.write_bytes(data[:kept] + bytes(len(data) - kept))
    (said,) = warnings_of(member, caplog)
    assert "at the end of the journal were not completely written and are cut off" in said


def test_a_journal_of_the_future_is_told(member: Path, caplog: pytest.LogCaptureFixture) -> None:
    ahead = wall_now() * 1_000 + HOUR * 1_000
    os.utime(segment(member), ns=(ahead, ahead))
    (said,) = warnings_of(member, caplog)
    assert "later than the present time of this machine's clock: set the clock" in said


def test_the_time_that_a_machine_was_off_counts(member: Path) -> None:
    before = wall_now() * 1_000 - HOUR * 1_000
    os.utime(segment(member), ns=(before, before))
    (member / CLOCK_FILE).write_bytes(msgspec.json.encode({"boot": "another boot", "offset": 7}))
    last = busy("c1").events[-1].at
    assert come_back(member, warden_of(busy("c1"))).clock.now() >= last + HOUR


class Clocks:
    """A wall clock that is set, and a steady one."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_000 * HOUR, 5 * HOUR

    def run(self, wall: int, steady: int) -> None:
        self.wall += wall
        self.steady += steady


@pytest.mark.parametrize(("step", "way"), [(HOUR, "forward"), (-HOUR, "back")])
def test_a_clock_that_is_set_is_told_once(step: int, way: str) -> None:
    clocks = Clocks()
    certificate = Certificate(None, 0, 2_000 * HOUR, "")
    watch = WallClockCheck(lambda: certificate, lambda: clocks.wall, lambda: clocks.steady)
    assert watch.check() == []
    clocks.run(30 * SECOND, 29 * SECOND)
    assert watch.check() == [], "clocks are corrected a little all the time"
    clocks.run(30 * SECOND + step, 30 * SECOND)
    assert watch.check() == [f"the clock of this machine was set {way} by 3600 s"]
    assert watch.check() == []


def test_a_clock_that_cannot_be_right_is_told_until_the_certificate_is_renewed() -> None:
    clocks = Clocks()
    shown = Certificate(None, clocks.wall + 1, clocks.wall + HOUR, "")
    watch = WallClockCheck(lambda: shown, lambda: clocks.wall, lambda: clocks.steady)
    (said,) = watch.check()
    assert "is not valid yet, so the clock is behind" in said
    assert watch.check() == []
    clocks.run(30 * SECOND, 30 * SECOND)
    assert watch.check() == []
    clocks.run(2 * HOUR, 2 * HOUR)
    (said,) = watch.check()
    assert "has expired" in said
    shown = Certificate(None, 0, clocks.wall + HOUR, "")
    clocks.run(30 * SECOND, 30 * SECOND)
    assert watch.check() == []
