"""The production layout that ``deploy`` shows, on hosts that are network namespaces: founded, joined and used
by the commands of its README, watched by Prometheus, and one broker dies.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from hanse.cli.embedded.background_start import start_member
from hanse.cli.embedded.league_setup import roles_of
from hanse.league.config import LeagueConfig
from hanse.league.file import load
from hanse.security.certificate_parser import read_certificate
from hanse.security.home import Home
from tests.live.harness import START_SECONDS_MAX, open_directory, stop_launchers
from tests.live.namespaces import Network, network, unavailable
from tests.live.telemetry.scraped import missing, prometheus

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

DEPLOY = Path(__file__).parents[2] / "deploy"
DOMAIN = ".example.org"
USER, MONITOR = "user", "monitor"
"""Hosts that are no members': where somebody works, and where Prometheus runs."""
TIMINGS = {"cluster_lease": "6s", "runner_lease": "4s", "suspect_after": "3s", "lease_grace": "500ms"}
"""Shorter than in production, so that a failure is over sooner."""
COMMAND_SECONDS_MAX = 120.0


class Site:
    """The machines of a league, each with a home of its own."""

    def __init__(self, directory: Path, net: Network, league_file: Path, held: ExitStack) -> None:
        self.directory = directory
        self.net = net
        self.league_file = league_file
        self.league: LeagueConfig = load(league_file)
        self.roles = roles_of(self.league)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        held.callback(self._stop)

    def home(self, host: str) -> Path:
        """A host's home of the league."""
        return self.directory / host

    def hanse(self, host: str, *words: str, statuses: tuple[int, ...] = (0,)) -> str:
        """Run a command on a host; what it printed."""
        environment = {**os.environ, "HANSE_CONFIG": str(self.directory / host / "config.json")}
        done = subprocess.run(
            [*self.net.prefix(host), sys.executable, "-m", "hanse", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS_MAX,
            env=environment,
        )
        assert done.returncode in statuses, f"{host}: hanse {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def join(self, host: str, role: str, name: str) -> None:
        """Let somebody in: a token from the founder, used on another host."""
        token = self.hanse("broker-1", "token", "create", "--home", str(self.home("broker-1")), role, name)
        door = str(self.league.broker("broker-1").door)
        self.hanse(host, "join", "--home", str(self.home(host)), door, "--token", token)

    def start(self, *names: str) -> None:
        """Start members on their hosts, and wait until they are ready."""
        readers: dict[int, str] = {}
        for name in names:
            reader, self.processes[name] = start_member(
                Home(self.home(name)), str(self.roles[name]), name, prefix=self.net.prefix(name)
            )
            readers[reader] = name
        for reader, name in readers.items():
            readable, _, _ = select.select([reader], [], [], START_SECONDS_MAX)
            told = os.read(reader, 16) if readable else b""
            os.close(reader)
            assert told, f"{name}:\n{(self.home(name) / name / 'log.jsonl').read_text()[-3_000:]}"

    def kill(self, name: str) -> None:
        """End a member without warning."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(START_SECONDS_MAX)

    def _stop(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(START_SECONDS_MAX)
        stop_launchers(self.directory)


@contextmanager
def site(directory: Path) -> Iterator[Site]:
    """The example's hosts, with its league file written for them."""
    example: LeagueConfig = load(DEPLOY / "league.yaml")
    hosts = [*example.members(), USER, MONITOR]
    with network(hosts) as net, ExitStack() as held:
        text = (DEPLOY / "league.yaml").read_text(encoding="utf-8")
        for host in sorted(hosts, key=len, reverse=True):  # north-2 before north
            text = text.replace(f'"{host}{DOMAIN}:', f'"{net.address(host)}:')
        assert DOMAIN not in text, "the example names a host that is no member"
        data = {**yaml.safe_load(text), "timings": TIMINGS}
        for host in hosts:
            (directory / host).mkdir(mode=0o711)
        file = directory / "league.yaml"
        file.write_text(yaml.safe_dump(data), encoding="utf-8")
        made = Site(directory, net, file, held)
        with net.inside(USER):
            yield made


@pytest.fixture(scope="module")
def place() -> Iterator[Site]:
    """The whole league up, as deploy/README.md says."""
    with open_directory() as directory, site(directory) as made:
        made.hanse(
            *("broker-1", "init", "--home", str(made.home("broker-1")), str(made.league_file)),
            *("--member", "broker-1"),
        )
        made.start("broker-1")
        others = [name for name in made.roles if name != "broker-1"]
        for name in others:
            made.join(name, str(made.roles[name]), name)
        made.start(*others)
        made.join(USER, "submitter", "alice")
        until(lambda: len(reachable(made)) == 2)
        yield made


def reachable(made: Site) -> list[str]:
    """Clusters that the asked broker hears."""
    status = json.loads(made.hanse(USER, "status", "--json", statuses=(0, 1)))
    return [cluster["name"] for cluster in status["clusters"] if cluster["reachable"]]


def until(condition: Any) -> None:
    """Look at the outside world until it is as it should be."""
    deadline = time.monotonic() + COMMAND_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.1)  # there is nothing to await


def test_everybody_has_a_home_of_its_own_and_brokers_have_the_authority(place: Site) -> None:
    for name, role in place.roles.items():
        if role == "broker":
            until(lambda name=name: (place.home(name) / "authority" / "ca.key").is_file())
        else:
            assert not (place.home(name) / "authority").exists()
        assert load(place.home(name) / "league.yaml") == load(place.home("broker-1") / "league.yaml")


def test_work_runs_on_every_machine_and_its_output_comes_back(place: Site) -> None:
    for name, zone in (("first", "a"), ("second", "b"), ("third", "c")):
        said = place.hanse(
            *(USER, "submit", "--follow", "--name", name, "--where", f'zone == "{zone}"', "--mem", "16MiB"),
            *("--", "sh", "-c", "echo $HANSE_CLUSTER/$HANSE_NODE"),
        )
        wanted = {"a": "north/0", "b": "north/1", "c": "south/0"}[zone]
        assert wanted in said, said


@pytest.mark.skipif(bool(missing("prometheus")), reason=missing("prometheus"))
def test_prometheus_knows_every_member_by_its_host(place: Site, tmp_path: Path) -> None:
    """With the shipped file: nothing is changed but names, places and pace."""
    place.join(MONITOR, "viewer", "prometheus")
    mine = place.home(MONITOR) / "people" / "prometheus"
    text = (DEPLOY / "prometheus.yml").read_text(encoding="utf-8")
    for host in sorted(place.roles, key=len, reverse=True):
        text = text.replace(f"- {host}{DOMAIN}:", f"- {place.net.address(host)}:")
    text = text.replace("/var/lib/prometheus/hanse/people/prometheus", str(mine)).replace("15s", "500ms")
    data = yaml.safe_load(text)
    data["rule_files"] = [str(DEPLOY / "alerts.yml")]
    config = tmp_path / "prometheus.yml"
    config.write_text(yaml.safe_dump(data), encoding="utf-8")
    start = place.net.prefix(MONITOR)
    with prometheus(tmp_path, config, start) as server, place.net.inside(MONITOR):
        server.until('sum(up{job=~"hanse-.*"})', len(place.roles))
        server.until("count(hanse_cluster_capacity{resource='cpu'})", 2)
        before = read_certificate((mine / "identity.pem").read_text(encoding="ascii"))
        assert "Renewed" in place.hanse(MONITOR, "renew", "--home", str(place.home(MONITOR)), "prometheus")
        after = read_certificate((mine / "identity.pem").read_text(encoding="ascii"))
        assert after.identity == before.identity
        assert after.fingerprint != before.fingerprint
        server.until('sum(up{job=~"hanse-.*"})', len(place.roles))


def test_a_broker_dies_and_its_jobs_go_on(place: Site) -> None:
    gate = place.directory / "gate"
    wait = f"until [ -e {gate} ]; do sleep 0.1; done; echo through"
    jobs = place.hanse(USER, "submit", "-q", "-n", "4", "--mem", "16MiB", "--", "sh", "-c", wait).split()
    owner = int(jobs[0].partition("-")[0])
    place.hanse(USER, "submit", "--wait", "--mem", "16MiB", "--", "true")
    until(lambda: json.loads(place.hanse(USER, "show", jobs[0], "--json"))["job"]["running"] == 4)
    place.kill(f"broker-{owner}")
    place.hanse(USER, "submit", "--wait", "--mem", "16MiB", "-n", "3", "--", "true")
    gate.touch()
    place.hanse(USER, "wait", jobs[0])
    shown = json.loads(place.hanse(USER, "show", jobs[0], "--json"))["job"]
    assert (shown["state"], shown["succeeded"]) == ("succeeded", 4)
    assert shown["owner"] != f"broker-{owner}"
    assert [
        task["attempt"] for task in json.loads(place.hanse(USER, "show", jobs[0], "--json"))["tasks"]
    ] == [1] * 4
    place.start(f"broker-{owner}")
    place.hanse(USER, "submit", "--wait", "--mem", "16MiB", "--", "true")
