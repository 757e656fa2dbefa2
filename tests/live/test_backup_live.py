"""Backups of members that run, put back beside a live league and into an empty home."""

import os
import shutil
import signal
import tarfile
import threading

import pytest
import yaml
from click.testing import CliRunner, Result

from hanse.cli.main import hanse
from hanse.live.backup import BackupError, back_up, restore
from hanse.live.journal.repair import verify
from hanse.live.recovery import LOST_RECORDS_FILE
from tests.live.harness import QUICK, WAIT_SECONDS_MAX, LiveLeague, open_directory, running

LEAGUE = yaml.safe_dump(
    {
        "league": "hansa",
        "timings": QUICK,
        "brokers": [{"name": "b1"}, {"name": "b2"}],
        "clusters": [
            {"name": name, "backend": "process", "nodes": [{"count": 2, "cpus": 2}]}
            for name in ("north", "south")
        ],
    }
)
SHORT = {"command": "true"}
FILE = 74
"""The exit status of a member whose files are in the way."""
COPIES = 6


def call(league: LiveLeague, *words: object) -> Result:
    """Run a command on the league's home."""
    return CliRunner().invoke(hanse, [str(word) for word in words], env={"HANSE_HOME": str(league.home.path)})


def refused(league: LiveLeague, name: str, why: str) -> None:
    """Start a member that must be refused."""
    with pytest.raises(AssertionError, match="ended at once"):
        league.start(name)
    assert league.processes.pop(name).wait(WAIT_SECONDS_MAX) == FILE
    assert why in league.log(name)


def test_backups_made_under_load_are_sound_and_old_ones_are_fenced() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        jobs: list[str] = []
        enough = threading.Event()

        def submit() -> None:
            while not enough.is_set():
                jobs.append(league.submit(SHORT))

        client = threading.Thread(target=submit)
        client.start()
        try:
            for number in range(COPIES):
                done = call(league, "backup", "b1", "--to", directory / f"b1-{number}")
                assert done.exit_code == 0, done.output
                assert "b1 of league hansa" in done.output
                assert call(league, "backup", "south", "--to", directory / f"south-{number}").exit_code == 0
        finally:
            enough.set()
            client.join()
        assert not (directory / "b1-0").stat().st_mode & 0o077, "there are keys in it"
        jobs.append(league.submit({"command": "sleep 1", "count": 8}))  # something for both clusters
        for member in ("b1", "south"):
            league.kill(member)
            lost(league, member)
            for number in reversed(range(COPIES)):
                assert call(league, "restore", directory / f"{member}-{number}").exit_code == 0
                assert verify(league.home.member(member) / "journal").problem is None
                refused(league, member, f"is older than {member} itself")
                lost(league, member)
            jobs.append(league.submit({"command": "sleep 1", "count": 8}, "b2"))
            for job in jobs:
                assert league.wait(job, "b2")["state"] == "succeeded"
        assert len(set(jobs)) == len(jobs)


def lost(league: LiveLeague, member: str) -> None:
    """The member's disk is gone."""
    shutil.rmtree(league.home.member(member))
    for path in league.home.path.glob(f"{member}.before-restore-*"):
        shutil.rmtree(path)


def test_a_league_that_was_stopped_comes_back_in_an_empty_home() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        job = league.submit(SHORT)
        assert league.wait(job)["state"] == "succeeded"
        names = list(league.processes)
        for name in names:
            league.kill(name, signal.SIGTERM)
        for name in ("authority", *names):
            back_up(league.home, name, directory / f"{name}.backup")
        shutil.rmtree(league.home.path)
        for name in ("authority", *names):
            done = call(league, "restore", directory / f"{name}.backup")
            assert done.exit_code == 0, done.output
        league.start().settle()
        assert league.broker().ask("GET", f"/v1/jobs/{job}")["row"]["state"] == "succeeded"
        again = league.submit(SHORT)
        assert again != job
        assert league.wait(again)["state"] == "succeeded"
        made = call(league, "token", "create", "viewer", "anna")
        assert made.exit_code == 0, made.output


def test_a_member_that_is_known_to_have_had_more_is_left_as_one_that_lost_records() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        back_up(league.home, "b1", directory / "b1.backup")
        job = league.submit(SHORT)
        league.wait(job)
        league.kill("b1", signal.SIGTERM)
        sound = call(league, "restore", directory / "b1.backup")
        assert sound.exit_code == 1
        assert "nothing was changed" in sound.output
        shutil.rmtree(league.home.member("b1") / "journal")  # reached.json is still there
        done = call(league, "restore", directory / "b1.backup")
        assert done.exit_code == 0, done.output
        assert "it will not start under this name" in done.output
        assert (league.home.member("b1") / LOST_RECORDS_FILE).exists()
        assert (league.home.path / "b1.before-restore-1" / "reached.json").exists()
        refused(league, "b1", "has lost records")
        assert league.wait(job, "b2")["state"] == "succeeded"


def test_what_cannot_be_backed_up_or_restored_is_told() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        target = directory / "b1.backup"
        back_up(league.home, "b1", target)
        with pytest.raises(BackupError, match="exists already"):
            back_up(league.home, "b1", target)
        with pytest.raises(BackupError, match="has no journal"):
            back_up(league.home, "nobody", directory / "x")
        with pytest.raises(BackupError, match="b1 is running; stop it first"):
            restore(league.home, target)
        back_up(league.home, "authority", directory / "authority.backup")
        with pytest.raises(BackupError, match="exists already"):
            restore(league.home, directory / "authority.backup")
        (directory / "garbage").write_bytes(os.urandom(2_000))
        with pytest.raises(BackupError, match="cannot be read as a backup"):
            restore(league.home, directory / "garbage")
        with tarfile.open(directory / "other", "w:gz") as archive:
            archive.add(target, "something")
        with pytest.raises(BackupError, match="does not begin with"):
            restore(league.home, directory / "other")
        league.kill("b1")
        (directory / "cut").write_bytes(target.read_bytes()[:-3_000])
        lost(league, "b1")
        with pytest.raises(BackupError, match="damaged"):
            restore(league.home, directory / "cut")
        assert not league.home.member("b1").exists(), "nothing was changed"
        assert [*directory.glob(".backup-*"), *league.home.path.glob(".restore-*")] == []
