"""A member whose journal is missing, older or another one is refused; a new one starts."""

import shutil
import signal
from pathlib import Path

import msgspec
import pytest

from hanse.core.config import BrokerConfig, WardenConfig
from hanse.league.config import PolicyConfig
from hanse.live.config.config_history import BrokerSettings, MemberSettings, WardenSettings
from hanse.live.high_water_mark import (
    HIGH_WATER_MARK_FILE,
    LostHistoryError,
    read_high_water_mark,
    refuse_journal_behind,
)
from hanse.live.journal.journal import Journal
from hanse.live.recovery import JOURNAL_DIRECTORY, recover
from hanse.model.events import Booted, Tick
from hanse.model.ids import SECOND
from tests.core.wired import node
from tests.live.harness import LiveLeague, open_directory, running

BROKER = BrokerSettings(
    BrokerConfig("b1", 1, ("b1", "b2"), ("c1",)), PolicyConfig("fifo", "best-fit", "best-standing", "least")
)
WARDEN = WardenSettings(WardenConfig("c1", (node(),), ("b1", "b2")))
BOTH = pytest.mark.parametrize("settings", [BROKER, WARDEN], ids=["broker", "warden"])
LEAGUE = """
league: hansa
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, backend: process, nodes: [{count: 2, cpus: 2}]}
  - {name: south, backend: process, nodes: [{count: 2, cpus: 2}]}
"""
FILE = 74
"""The exit status of a member whose files are in the way."""


def live(directory: Path, settings: MemberSettings, at: int = 0) -> int:
    """One life: come back, take two events ``at`` seconds later than usual, and stop; the position at its
    end."""
    found = recover(directory, settings)
    journal = found.journal
    for event in (
        Booted((at + journal.position) * SECOND, 1, 7),
        Tick((at + journal.position + 1) * SECOND),
    ):
        journal.append(msgspec.msgpack.encode(event))
    journal.commit()
    journal.close()
    return journal.position


@BOTH
def test_a_new_member_starts_and_comes_back(tmp_path: Path, settings: MemberSettings) -> None:
    assert live(tmp_path / "m", settings) == 2
    assert live(tmp_path / "m", settings) == 4
    reached = read_high_water_mark(tmp_path / "m")
    assert reached is not None
    assert reached.position == 2, "the file may lag behind the journal"


@BOTH
def test_a_start_that_was_interrupted_before_the_journal_was_made_is_repeated(
    tmp_path: Path, settings: MemberSettings
) -> None:
    (tmp_path / "m" / JOURNAL_DIRECTORY).mkdir(parents=True)
    assert live(tmp_path / "m", settings) == 2


@BOTH
@pytest.mark.parametrize("empty", [False, True], ids=["missing", "empty"])
def test_a_missing_journal_is_refused(tmp_path: Path, settings: MemberSettings, empty: bool) -> None:
    live(tmp_path / "m", settings)
    live(tmp_path / "m", settings)
    shutil.rmtree(tmp_path / "m" / JOURNAL_DIRECTORY)
    if empty:
        (tmp_path / "m" / JOURNAL_DIRECTORY).mkdir()
    for _ in range(2):
        with pytest.raises(
            LostHistoryError, match=r"had reached record 2 .* no journal in .*Mount the volume"
        ):
            recover(tmp_path / "m", settings)


@BOTH
def test_a_missing_journal_of_a_league_from_before_is_refused(
    tmp_path: Path, settings: MemberSettings
) -> None:
    live(tmp_path / "m", settings)
    shutil.rmtree(tmp_path / "m" / JOURNAL_DIRECTORY)
    (tmp_path / "m" / HIGH_WATER_MARK_FILE).unlink()
    with pytest.raises(LostHistoryError, match=r"was started before \(eras.json and clock.json exist\)"):
        recover(tmp_path / "m", settings)


@BOTH
def test_a_journal_of_a_league_from_before_is_taken(tmp_path: Path, settings: MemberSettings) -> None:
    live(tmp_path / "m", settings)
    (tmp_path / "m" / HIGH_WATER_MARK_FILE).unlink()
    assert live(tmp_path / "m", settings) == 4


@BOTH
def test_an_older_journal_is_refused(tmp_path: Path, settings: MemberSettings) -> None:
    live(tmp_path / "m", settings)
    shutil.copytree(tmp_path / "m" / JOURNAL_DIRECTORY, tmp_path / "copy")
    live(tmp_path / "m", settings)
    recover(tmp_path / "m", settings).journal.close()
    shutil.rmtree(tmp_path / "m" / JOURNAL_DIRECTORY)
    shutil.copytree(tmp_path / "copy", tmp_path / "m" / JOURNAL_DIRECTORY)
    with pytest.raises(LostHistoryError, match=r"had reached record 4 .* ends with record 2: it is an older"):
        recover(tmp_path / "m", settings)


@BOTH
@pytest.mark.parametrize("lives", [1, 2], ids=["as long", "longer"])
def test_a_copy_that_went_on_by_itself_is_refused(
    tmp_path: Path, settings: MemberSettings, lives: int
) -> None:
    """The same journal by its identity, not shorter than what was reached, and with other records there."""
    live(tmp_path / "m", settings)
    shutil.copytree(tmp_path / "m", tmp_path / "copy")
    for _ in range(lives):
        live(tmp_path / "copy", settings, at=1_000)
    live(tmp_path / "m", settings)
    recover(tmp_path / "m", settings).journal.close()
    shutil.rmtree(tmp_path / "m" / JOURNAL_DIRECTORY)
    shutil.copytree(tmp_path / "copy" / JOURNAL_DIRECTORY, tmp_path / "m" / JOURNAL_DIRECTORY)
    with pytest.raises(LostHistoryError, match=r"had reached record 4 .* has other records there"):
        recover(tmp_path / "m", settings)


@BOTH
def test_another_members_journal_is_refused(tmp_path: Path, settings: MemberSettings) -> None:
    live(tmp_path / "m", settings)
    live(tmp_path / "other", settings)
    live(tmp_path / "other", settings)
    shutil.rmtree(tmp_path / "m" / JOURNAL_DIRECTORY)
    shutil.copytree(tmp_path / "other" / JOURNAL_DIRECTORY, tmp_path / "m" / JOURNAL_DIRECTORY)
    with pytest.raises(LostHistoryError, match="the journal found is another one"):
        recover(tmp_path / "m", settings)
    Journal.open(tmp_path / "m" / JOURNAL_DIRECTORY)[0].close()  # a refusal lets go of it


def test_a_file_that_is_garbage_is_told(tmp_path: Path) -> None:
    live(tmp_path / "m", BROKER)
    (tmp_path / "m" / HIGH_WATER_MARK_FILE).write_bytes(b"\0\0")
    with pytest.raises(LostHistoryError, match="is damaged"):
        recover(tmp_path / "m", BROKER)


def test_a_read_model_that_has_seen_more_is_a_witness(tmp_path: Path) -> None:
    refuse_journal_behind(tmp_path, "reads.sqlite", 7, 7)
    with pytest.raises(LostHistoryError, match=r"had reached record 8 .*reads.sqlite has seen it"):
        refuse_journal_behind(tmp_path, "reads.sqlite", 8, 7)


def refused(league: LiveLeague, name: str, why: str) -> None:
    """Start a member that must be refused with status 74 and this sentence."""
    with pytest.raises(AssertionError, match="ended at once"):
        league.start(name)
    assert league.processes.pop(name).wait(60) == FILE
    assert why in league.log(name)


def test_a_broker_and_a_warden_without_their_journals_do_not_start() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        for _ in range(3):
            league.wait(league.submit({"command": "true"}))
        for name in ("b1", "south"):
            league.kill(name)
            shutil.rmtree(league.home.member(name) / JOURNAL_DIRECTORY)
            (league.home.member(name) / JOURNAL_DIRECTORY).mkdir()
            refused(league, name, "and there is no journal in")
        job = league.submit({"command": "true"}, "b2")
        assert league.wait(job, "b2")["state"] == "succeeded"


def test_a_broker_with_an_older_journal_and_a_warden_with_anothers_do_not_start() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        broker, warden = league.home.member("b1"), league.home.member("south")
        shutil.copytree(broker / JOURNAL_DIRECTORY, directory / "older")
        league.wait(league.submit({"command": "true"}))
        league.kill("b1", signal.SIGTERM)  # an orderly end says how far it had come
        league.kill("south")
        shutil.rmtree(broker / JOURNAL_DIRECTORY)
        shutil.copytree(directory / "older", broker / JOURNAL_DIRECTORY)
        refused(league, "b1", "it is an older copy")
        shutil.rmtree(warden / JOURNAL_DIRECTORY)
        shutil.copytree(league.home.member("north") / JOURNAL_DIRECTORY, warden / JOURNAL_DIRECTORY)
        refused(league, "south", "the journal found is another one")
        assert league.wait(league.submit({"command": "true"}, "b2"), "b2")["state"] == "succeeded"
