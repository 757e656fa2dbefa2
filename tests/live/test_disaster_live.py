"""The procedures of docs/disaster.md, on real leagues whose disks are gone."""

import shutil
import signal
from typing import Any

import msgspec
import yaml
from click.testing import CliRunner, Result

from hanse.app.cli import hanse
from hanse.app.league_making import certify, with_ports
from hanse.live.identity.authority import Authority
from hanse.live.league import League
from hanse.live.league_file import league_from_data, store
from tests.live.harness import QUICK, LiveLeague, open_directory, running

NODES = [{"count": 2, "cpus": 2}]
NORTH, SOUTH, EAST = ({"name": name, "nodes": NODES} for name in ("north", "south", "east"))
B1, B2, B3 = ({"name": name} for name in ("b1", "b2", "b3"))
FULL = {"command": "sleep 1", "count": 8}
"""Something for two clusters."""
TRIES_MAX = 30
SHORT = {"command": "true"}


def described(brokers: list[dict[str, Any]], clusters: list[dict[str, Any]]) -> str:
    return yaml.safe_dump({"league": "hansa", "timings": QUICK, "brokers": brokers, "clusters": clusters})


def extend(league: LiveLeague, description: str) -> None:
    """Give every member the league file with a new member at the end, and restart those who live."""
    wished = league_from_data(yaml.safe_load(description))
    assert isinstance(wished, League), wished
    wished = with_ports(wished)
    brokers = {entry.name: entry for entry in league.league.brokers}
    clusters = {entry.name: entry for entry in league.league.clusters}
    league.league = msgspec.structs.replace(
        wished,
        brokers=tuple(brokers.get(entry.name, entry) for entry in wished.brokers),
        clusters=tuple(clusters.get(entry.name, entry) for entry in wished.clusters),
    )
    store(league.home.league_file, league.league)
    certify(league.home, league.league, Authority.open(league.home.authority))
    for name in list(league.processes):
        league.kill(name, signal.SIGTERM)
        league.start(name)


def lose(league: LiveLeague, name: str) -> None:
    """A member dies and its disk with it."""
    league.kill(name)
    shutil.rmtree(league.home.member(name))


def call(league: LiveLeague, *words: object) -> Result:
    return CliRunner().invoke(hanse, [str(word) for word in words], env={"HANSE_HOME": str(league.home.path)})


def test_a_broker_is_gone() -> None:
    first = described([B1, B2], [NORTH, SOUTH])
    with open_directory() as directory, running(directory / "home", first) as league:
        jobs = [league.submit(FULL) for _ in range(2)]
        lose(league, "b1")
        for job in jobs:
            assert league.wait(job, "b2")["state"] == "succeeded"
        extend(league, described([B1, B2, B3], [NORTH, SOUTH]))
        league.start("b3")
        jobs.append(league.submit(FULL, "b3"))
        assert league.wait(jobs[-1], "b3")["state"] == "succeeded"
        assert len(set(jobs)) == 3


def test_a_warden_is_gone() -> None:
    first = described([B1, B2], [NORTH, SOUTH])
    with open_directory() as directory, running(directory / "home", first) as league:
        jobs = [league.submit(FULL) for _ in range(2)]
        lose(league, "south")
        for job in jobs:
            assert league.wait(job)["state"] == "succeeded"
        extend(league, described([B1, B2], [NORTH, SOUTH, EAST]))
        league.start("east")
        used: set[str] = set()
        for _ in range(TRIES_MAX):  # until its first beat has reached the broker
            job = league.submit(FULL)
            assert league.wait(job)["state"] == "succeeded"
            used.update(task["cluster"] for task in league.tasks(job))
            if "east" in used:
                break
        assert used == {"north", "east"}


def test_a_runner_is_gone() -> None:
    remote = {"name": "north", "runners": [{"name": "far"}], "nodes": [{"cpus": 2, "runner": "far"}]}
    with open_directory() as directory, running(directory / "home", described([B1], [remote])) as league:
        assert league.wait(league.submit(SHORT))["state"] == "succeeded"
        lose(league, "far")
        certify(league.home, league.league, Authority.open(league.home.authority))
        league.start("far")
        assert league.wait(league.submit(SHORT))["state"] == "succeeded"


def test_the_authority_is_gone() -> None:
    first = described([B1, B2], [NORTH])
    with open_directory() as directory, running(directory / "home", first) as league:
        saved = directory / "authority.backup"
        assert call(league, "backup", "authority", "--to", saved).exit_code == 0
        shutil.rmtree(league.home.authority)
        assert call(league, "token", "create", "viewer", "anna").exit_code != 0
        assert league.wait(league.submit(SHORT))["state"] == "succeeded", "members live on"
        assert call(league, "restore", saved).exit_code == 0
        assert call(league, "token", "create", "viewer", "anna").exit_code == 0
        renewed = call(league, "renew", "b1")
        assert renewed.exit_code == 0, renewed.output
