"""The authority is not tied to one machine: the founder's is lost, and the league goes on without it.

Every member has a home of its own, as on machines of their own.
"""

import os
import select
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from hanse.cli.embedded.background_start import start_member
from hanse.cli.embedded.league_setup import PERSON, roles_of, with_ports
from hanse.cli.main import hanse
from hanse.league.config import LeagueConfig
from hanse.league.file import league_to_text
from hanse.league.reader import league_from_data
from hanse.security.certificate_authority import Authority
from hanse.security.credentials import Credentials
from hanse.security.home import Home
from hanse.security.identity import Identity, Role
from hanse.security.private_keys import certificate_request, new_key
from tests.live.harness import open_directory
from tests.live.http.conftest import Said, ask

LEAGUE = """
brokers: [{name: b1}, {name: b2}, {name: b3}]
clusters:
  - {name: north, backend: "null", nodes: [{cpus: 4}]}
  - {name: south, backend: "null", nodes: [{cpus: 4}]}
"""
SECONDS_MAX = 120.0
"""Longer than anything here takes on a busy machine; reached only by a failure."""


class Machines:
    """A league of which every member has a home of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        league = league_from_data(yaml.safe_load(LEAGUE))
        assert isinstance(league, LeagueConfig), league
        self.league = with_ports(league)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        file = directory / "league.yaml"
        file.write_text(league_to_text(self.league), encoding="utf-8")
        self.ok("init", "--home", self.path("b1"), "--member", "b1", str(file))
        shutil.copytree(self.home("b1").person(PERSON), directory / "admin")
        self.admin = Credentials(directory / "admin")

    def home(self, name: str) -> Home:
        return Home(self.directory / f"home-{name}")

    def path(self, name: str) -> str:
        return str(self.home(name).path)

    def door(self, broker: str) -> str:
        return str(self.league.broker(broker).door)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(hanse, list(words))

    def ok(self, *words: str) -> str:
        done = self.run(*words)
        assert done.exit_code == 0, f"{words}: {done.output}"
        return done.stdout.strip()

    def join(self, name: str, role: Role, at: str) -> None:
        """Let a newcomer in by a token that is made beside a broker."""
        token = self.ok("token", "create", "--home", self.path(at), str(role), name)
        self.ok("join", "--home", self.path(name), self.door(at), "--token", token)

    def start(self, name: str) -> None:
        role = str(roles_of(self.league)[name])
        reader, self.processes[name] = start_member(self.home(name), role, name)
        told = b""
        deadline = time.monotonic() + SECONDS_MAX
        while b"ready" not in told:
            readable, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"{name} did not get ready"
            told = os.read(reader, 4_096)
            assert told, f"{name} ended at once:\n{self.log(name)[-3_000:]}"
        os.close(reader)

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(SECONDS_MAX)

    def log(self, name: str) -> str:
        return (self.home(name).member(name) / "log.jsonl").read_text(encoding="utf-8")

    def asked(
        self, broker: str, holder: Credentials, verb: str, path: str, body: bytes | None = None
    ) -> Said:
        context = holder.client_context(Identity(self.league.name, Role.BROKER, broker))
        return ask(self.league.broker(broker).door, context, verb, path, body)

    def reachable(self, broker: str) -> list[str]:
        told = self.asked(broker, self.admin, "GET", "/v1/league").body
        clusters = msgspec.json.decode(told)["clusters"]
        return [cluster["name"] for cluster in clusters if cluster["reachable"]]

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(SECONDS_MAX)


def until(condition: Callable[[], bool], what: str) -> None:
    """Look at the outside world until it is as it should be."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"it never came to that: {what}"
        time.sleep(0.05)  # there is nothing to await


@pytest.fixture(scope="module")
def place() -> Iterator[Machines]:
    with open_directory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HANSE_CONFIG", str(directory / "config.json"))
        made = Machines(directory)
        try:
            made.start("b1")
            made.join("b2", Role.BROKER, "b1")
            made.stop("b1")
            made.start("b2")  # nobody is there to ask
            until(lambda: "cannot issue certificates" in made.log("b2"), "b2 has tried")
            made.start("b1")
            for name, role in (("b3", Role.BROKER), ("north", Role.WARDEN)):
                made.join(name, role, "b1")
                made.start(name)
            until(lambda: all(made.home(name).has_authority for name in ("b2", "b3")), "all brokers have it")
            yield made
        finally:
            made.close()


def test_every_broker_and_nobody_else_has_the_key_and_nobody_has_told_it(place: Machines) -> None:
    key = (place.home("b1").authority / "ca.key").read_text(encoding="ascii")
    fingerprint = Authority.open(place.home("b1").authority).fingerprint
    for name in ("b2", "b3"):
        home = place.home(name)
        assert Authority.open(home.authority).fingerprint == fingerprint
        assert stat.S_IMODE(home.authority.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in home.authority.iterdir()} == {0o600}
        assert not home.is_founding
    assert place.home("b1").is_founding
    assert not place.home("north").authority.exists()
    secret = key.splitlines()[1]
    for name in place.processes:
        assert secret not in place.log(name)
    assert "broker b2 was given the authority's key" in place.log("b1")


def test_the_key_is_for_brokers_of_the_league_file_only(place: Machines) -> None:
    authority = Authority.open(place.home("b2").authority)
    for name, role, status in (
        ("b3", Role.BROKER, 200),
        ("b9", Role.BROKER, 409),
        ("north", Role.WARDEN, 403),
        ("b3", Role.ADMIN, 403),
    ):
        key = new_key()
        issued = authority.issue(Identity(place.league.name, role, name), certificate_request(key))
        assert isinstance(issued, str)
        holder = Credentials(place.directory / f"{role}-{name}")
        holder.store(key, issued, authority.certificate)
        said = place.asked("b2", holder, "GET", "/v1/authority/key")
        assert said.status == status, (name, role)
        assert (b"PRIVATE KEY" in said.body) == (status == 200)


def test_a_token_of_another_broker_is_refused_with_the_reason(place: Machines) -> None:
    token = place.ok("token", "create", "--home", place.path("b2"), "viewer", "ann")
    joining = ("join", "--home", str(place.directory / "ann"))
    refused = place.run(*joining, place.door("b3"), "--token", token)
    assert refused.exit_code == 1
    assert "at the broker beside which it was made" in refused.output
    assert "viewer ann" in place.ok(*joining, place.door("b2"), "--token", token)


def test_a_whole_league_is_not_started_in_the_home_of_one_of_its_brokers(place: Machines) -> None:
    refused = place.run("up", "--home", place.path("b2"))
    assert refused.exit_code != 0
    assert "is the home of a broker that has joined its league" in str(refused.exception) + refused.output
    assert not Credentials(place.home("b2").member("north")).path.exists()


def test_the_founder_is_lost_and_the_league_goes_on(place: Machines) -> None:
    place.stop("b1", signal.SIGKILL)
    shutil.rmtree(place.home("b1").path)

    north = Credentials(place.home("north").member("north"))
    before = north.certificate()
    assert "Renewed" in place.ok("renew", "--home", place.path("north"), "north")
    assert north.certificate().identity == before.identity
    assert north.certificate().fingerprint != before.fingerprint
    wish = b'{"csr": "' + certificate_request(new_key()).replace("\n", "\\n").encode() + b'"}'
    for name in ("b2", "b3"):
        said = place.asked(name, north, "POST", "/v1/renew", wish)
        assert (said.status, b"BEGIN CERTIFICATE" in said.body) == (200, True), said.body

    place.join("south", Role.WARDEN, "b3")
    place.start("south")
    until(lambda: all("south" in place.reachable(name) for name in ("b2", "b3")), "south takes part")

    access = place.ok("access", "create", "--home", place.path("b2"), "ci", "--role", "viewer")
    token = next(word for word in access.split() if len(word) > 40)
    outside = place.admin.client_context(Identity(place.league.name, Role.BROKER, "b3"), show=False)
    header = {"Authorization": f"Bearer {token}"}
    said = ask(place.league.broker("b3").door, outside, "GET", "/v1/league", None, header)
    assert said.status == 200, said.body
