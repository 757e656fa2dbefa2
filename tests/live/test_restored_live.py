"""Copies of several ages put back beside a live league: the peers notice, before anything is given out."""

import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from hanse.live.high_water_mark import JOURNAL_OLDER_FILE
from hanse.live.runner_shell import EPOCH_FILE
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
ONE_CLUSTER = """
brokers: [{name: b1}]
clusters: [{name: north, backend: process, nodes: [{cpus: 2}]}]
"""
FAR = """
brokers: [{name: b1}]
clusters: [{name: north, runners: [{name: far}], nodes: [{cpus: 2, runner: far}]}]
"""
SHORT = {"command": "true", "cpus": 1}
FILE = 74
"""The exit status of a member whose files are in the way."""
OWN = "is older than {0} itself"


class Copies:
    """Copies of a member's directory, and what was acknowledged."""

    def __init__(self, league: LiveLeague, member: str, place: Path) -> None:
        self.league = league
        self.member = member
        self.jobs: list[str] = []
        self.taken: list[Path] = []
        self._place = place

    def submit(self, job: dict[str, Any], broker: str = "b1") -> str:
        """Submit a job, and note that it was acknowledged."""
        number = self.league.submit(job, broker)
        self.jobs.append(number)
        return number

    def work(self, count: int = 3) -> None:
        """Let some jobs come and go at both brokers."""
        for _ in range(count):
            for broker in ("b1", "b2"):
                self.league.wait(self.submit(SHORT, broker), broker)

    def take(self) -> None:
        """Copy the directory, while the member runs."""
        copy = self._place / str(len(self.taken))
        copy_directory(self.league.home.member(self.member), copy)
        self.taken.append(copy)

    def put_back(self, copy: Path) -> None:
        """Let the member's whole directory be this copy."""
        directory = self.league.home.member(self.member)
        shutil.rmtree(directory)
        copy_directory(copy, directory)

    def refused(self) -> None:
        """Start the member twice: it must be refused, with the reason, and the second time without asking."""
        league, member = self.league, self.member
        for _ in range(2):
            with pytest.raises(AssertionError, match="ended at once"):
                league.start(member)
            assert league.processes.pop(member).wait(WAIT_SECONDS_MAX) == FILE
            assert OWN.format(member) in league.log(member)
            assert (league.home.member(member) / JOURNAL_OLDER_FILE).exists()

    def all_end(self, broker: str) -> None:
        """Every acknowledged job ends, seen from a broker, and no number was given twice."""
        assert len(set(self.jobs)) == len(self.jobs)
        for job in self.jobs:
            assert self.league.wait(job, broker)["state"] == "succeeded"


def copy_directory(source: Path, target: Path) -> None:
    """Copy a directory that somebody may be writing to: a file may go while it is copied."""
    with suppress(shutil.Error):
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("*.part", "tasks"))
    assert (target / "journal").is_dir()


def test_older_copies_of_a_broker_are_noticed_and_its_work_ends_elsewhere() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        copies = Copies(league, "b1", directory)
        for _ in range(3):
            copies.take()
            copies.work()
        for _ in range(6):  # some run and some wait when it dies
            copies.submit({"command": ["sleep", "2"], "cpus": 2})
        league.kill("b1")
        newest = directory / "newest"
        copy_directory(league.home.member("b1"), newest)
        for copy in reversed(copies.taken):
            copies.put_back(copy)
            copies.refused()
        copies.all_end("b2")
        copies.put_back(newest)  # its own past is taken, whatever others did meanwhile
        league.start("b1")
        assert league.wait(copies.submit(SHORT))["state"] == "succeeded"
        copies.all_end("b2")


def test_older_copies_of_a_warden_are_noticed_and_its_tasks_run_elsewhere() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        copies = Copies(league, "south", directory)
        for _ in range(3):
            copies.take()
            copies.work()
        for _ in range(6):
            copies.submit({"command": ["sleep", "2"], "cpus": 2})
        league.kill("south")
        for copy in reversed(copies.taken):
            copies.put_back(copy)
            copies.refused()
        copies.all_end("b1")
        status, metrics = league.broker("b1").raw("GET", "/metrics")
        assert status == 200
        assert b'hanse_member_fenced{member="south"} 1' in metrics


def test_a_directory_that_was_lost_and_made_anew_is_noticed() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        copies = Copies(league, "b1", directory)
        copies.work(1)
        league.kill("b1")
        for name in ("journal", "reads.sqlite", "reads.sqlite-wal", "reads.sqlite-shm"):
            lose(league.home.member("b1") / name)
        for name in ("eras.json", "clock.json", "reached.json"):
            lose(league.home.member("b1") / name)
        copies.refused()
        copies.all_end("b2")


def lose(path: Path) -> None:
    """Delete a file or a directory, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def test_a_copy_with_nothing_said_since_is_taken() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        copies = Copies(league, "b1", directory)
        copies.work(1)
        league.kill("b1", signal.SIGTERM)
        copies.take()
        copies.put_back(copies.taken[0])
        league.start("b1")
        copies.submit(SHORT)
        copies.all_end("b1")


def test_peers_that_come_back_later_tell_a_member_that_runs() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        copies = Copies(league, "b1", directory)
        copies.take()
        copies.work(1)
        for name in ("b1", "b2", "north", "south"):
            league.kill(name)
        copies.put_back(copies.taken[0])
        league.start("b1")  # nobody is there to tell
        assert "some peers gave no answer about the past" in league.log("b1")
        league.start("north", "south")  # the one of them that has run its job knows
        assert league.processes.pop("b1").wait(WAIT_SECONDS_MAX) == FILE
        assert OWN.format("b1") in league.log("b1")
        copies.refused()
        league.start("b2")
        copies.all_end("b2")


@pytest.mark.parametrize("content", [None, "0", "garbage"], ids=["lost", "older", "garbage"])
def test_a_runner_that_has_forgotten_how_often_it_began_is_heard(content: str | None) -> None:
    with open_directory() as directory, running(directory / "home", ONE_CLUSTER) as league:
        league.wait(league.submit(SHORT))
        league.kill("north")
        epoch = league.home.member("north") / EPOCH_FILE
        epoch.unlink()
        if content is not None:
            epoch.write_text(content)
        league.start("north")
        assert league.wait(league.submit(SHORT))["state"] == "succeeded"


def test_a_runner_elsewhere_tells_its_warden_when_no_broker_is_there() -> None:
    with open_directory() as directory, running(directory / "home", FAR) as league:
        copies = Copies(league, "north", directory)
        copies.take()
        league.wait(copies.submit(SHORT))
        league.kill("b1")
        league.kill("north")
        copies.put_back(copies.taken[0])
        copies.refused()
        told = league.log("north").partition("is older than north itself: ")[2]
        assert "far" in told.partition(".")[0], told
