"""The procedures of docs/operator/disaster.md, read from the page, on real leagues whose disks are gone."""

import shutil
import signal
from typing import Any

import msgspec
import yaml
from click.testing import CliRunner, Result

from hanse.cli.embedded.league_setup import certify, with_ports
from hanse.cli.main import hanse
from hanse.league.config import LeagueConfig
from hanse.league.file import load, store
from hanse.league.reader import league_from_data
from hanse.live.membership.league_file_diff import retire_member
from hanse.security.certificate_authority import Authority
from tests.live.commands import Hand, commands_on, jobs_end
from tests.live.harness import QUICK, LiveLeague, open_directory, running, stop_launchers

NODES = [{"count": 2, "cpus": 2}]
NORTH, SOUTH = ({"name": name, "nodes": NODES} for name in ("north", "south"))
B1, B2, B3 = ({"name": name} for name in ("b1", "b2", "b3"))
THREE = [{"name": f"broker-{number}"} for number in (1, 2, 3)]
"""As the page calls them."""
PAGE = "operator/disaster.md"
FULL = {"command": "sleep 1", "count": 8}
"""Something for two clusters."""
TRIES_MAX = 30
SHORT = {"command": "true"}


def described(brokers: list[dict[str, Any]], clusters: list[dict[str, Any]]) -> str:
    return yaml.safe_dump({"league": "hansa", "timings": QUICK, "brokers": brokers, "clusters": clusters})


def extend_by_hand(league: LiveLeague, lost: str, description: str) -> None:
    """Stop all members, give them the next version of the file with a new broker at the end, and start."""
    wished = league_from_data(yaml.safe_load(description))
    assert isinstance(wished, LeagueConfig), wished
    known, newcomer = load(league.home.league_file), with_ports(wished).brokers[-1]
    after = retire_member(known, lost)
    assert after is not None
    version = known.version + 1
    league.league = msgspec.structs.replace(after, brokers=(*after.brokers, newcomer), version=version)
    there = list(league.processes)
    for name in there:
        league.kill(name, signal.SIGTERM)
    store(league.home.league_file, league.league)
    certify(league.home, league.league, Authority.open(league.home.authority))
    league.start(*there, newcomer.name)


def lose(league: LiveLeague, name: str) -> None:
    """A member dies and its disk with it. Its launcher ends then, and may remove its own socket meanwhile."""

    def keep_errors(_function: object, _path: object, error: Any) -> None:
        if not isinstance(error[1], FileNotFoundError):
            raise error[1]

    league.kill(name)
    shutil.rmtree(league.home.member(name), onerror=keep_errors)


def call(league: LiveLeague, *words: object) -> Result:
    return CliRunner().invoke(hanse, [str(word) for word in words], env={"HANSE_HOME": str(league.home.path)})


def test_a_broker_is_gone() -> None:
    with (
        open_directory() as directory,
        running(directory / "home", described(THREE, [NORTH, SOUTH])) as league,
    ):
        jobs = [league.submit(FULL, "broker-1") for _ in range(2)]
        lose(league, "broker-1")
        hand = Hand(league, directory)
        for line in commands_on(PAGE, "A broker"):
            hand.types(line)
        jobs_end(league, jobs, "broker-2")
        jobs.append(league.submit(FULL, "broker-4"))
        jobs_end(league, jobs[-1:], "broker-4")
        assert len(set(jobs)) == 3


def test_one_of_two_brokers_is_gone() -> None:
    first = described([B1, B2], [NORTH, SOUTH])
    with open_directory() as directory, running(directory / "home", first) as league:
        jobs = [league.submit(FULL) for _ in range(2)]
        lose(league, "b1")
        jobs_end(league, jobs, "b2")
        extend_by_hand(league, "b1", described([B1, B2, B3], [NORTH, SOUTH]))
        jobs.append(league.submit(FULL, "b3"))
        jobs_end(league, jobs[-1:], "b3")
        assert len(set(jobs)) == 3


def test_a_warden_is_gone_and_a_broker_as_well() -> None:
    with (
        open_directory() as directory,
        running(directory / "home", described(THREE, [NORTH, SOUTH])) as league,
    ):
        jobs = [league.submit({**FULL, "count": 40}, "broker-1") for _ in range(2)]
        lose(league, "south")
        lose(league, "broker-1")
        hand = Hand(league, directory)
        try:
            for line in commands_on(PAGE, "A warden"):
                hand.types(line)
            jobs_end(league, jobs, "broker-2")
            used: set[str] = set()
            for _ in range(TRIES_MAX):  # until every broker has told the others that it knows the newcomer
                jobs = [league.submit(FULL, "broker-2")]
                jobs_end(league, jobs, "broker-2")
                used.update(task["cluster"] for task in league.tasks(jobs[0], "broker-2"))
                if "east" in used:
                    break
            assert used == {"north", "east"}
        finally:
            league.close()
            stop_launchers(directory)


def test_a_runner_is_gone() -> None:
    remote = {"name": "north", "runners": [{"name": "far"}], "nodes": [{"cpus": 2, "runner": "far"}]}
    with open_directory() as directory, running(directory / "home", described([B1], [remote])) as league:
        assert league.wait(league.submit(SHORT))["state"] == "succeeded"
        lose(league, "far")
        hand = Hand(league, directory)
        try:
            for line in commands_on(PAGE, "A runner"):
                hand.types(line)
            assert league.wait(league.submit(SHORT))["state"] == "succeeded"
        finally:
            league.close()
            stop_launchers(directory)


def test_the_authority_is_gone() -> None:
    first = described([B1, B2], [NORTH])
    with open_directory() as directory, running(directory / "home", first) as league:
        hand = Hand(league, directory)
        hand.types("hanse backup authority --home HOME --to authority.backup")
        shutil.rmtree(league.home.authority)
        assert call(league, "token", "create", "viewer", "anna").exit_code != 0
        assert league.wait(league.submit(SHORT))["state"] == "succeeded", "members live on"
        for line in commands_on(PAGE, "The authority"):
            hand.types(line)
        assert call(league, "token", "create", "viewer", "anna").exit_code == 0
        renewed = call(league, "renew", "b1")
        assert renewed.exit_code == 0, renewed.output


def test_all_of_it_is_gone_and_comes_back_from_backups() -> None:
    first = described(THREE[:2], [NORTH])
    with open_directory() as directory, running(directory / "home", first) as league:
        hand = Hand(league, directory)
        ended = league.submit(SHORT, "broker-1")
        jobs_end(league, [ended], "broker-1")
        waiting = league.submit({**FULL, "count": 12}, "broker-1")
        lines = commands_on(PAGE, "All of it")
        names = list(league.processes)
        assert {line.split()[2] for line in lines} == {f"{name}.backup" for name in ("authority", *names)}
        for name in names:
            league.kill(name, signal.SIGTERM)
        for name in ("authority", *names):
            hand.types(f"hanse backup {name} --home HOME --to {name}.backup")
        stop_launchers(directory)
        shutil.rmtree(league.home.path)
        for line in lines:
            hand.types(line)
        league.start().settle()
        jobs_end(league, [ended, waiting], "broker-1")
        assert len({ended, waiting, league.submit(SHORT, "broker-1")}) == 3

        said = [hand.types(line) for line in commands_on(PAGE, "An old journal")]
        assert "jobs" in said[1]
        assert len((directory / "lived.csv").read_text(encoding="utf-8").splitlines()) >= 2
