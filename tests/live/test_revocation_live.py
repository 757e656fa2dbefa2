"""A revocation made at one broker is known at every door, also of those who were not there at the time."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanse.client.contexts import save_context
from hanse.client.exit_codes import ExitCode
from hanse.league.config import Address
from hanse.security.home import Home
from hanse.security.identity import Role
from tests.live.harness import LiveLeague, open_directory
from tests.live.http.conftest import Said, ask, ledger, nobody
from tests.live.sdk_league import context_of

LEAGUE = """
brokers: [{name: b1}, {name: b2}, {name: b3}]
clusters:
  - {name: north, backend: "null", nodes: [{count: 2, cpus: 4, memory: 1GiB}]}
  - name: far
    backend: "null"
    runners: [{name: far-1}]
    nodes: [{cpus: 1, runner: far-1}]
"""
BROKERS = ("b1", "b2", "b3")
SECONDS_MAX = 60.0


class Scattered(LiveLeague):
    """A league whose members share nothing: each has a home of its own, as on machines of their own."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "founded", LEAGUE)
        self.founded = self.home
        self.apart = directory

    def home_of(self, name: str) -> Home:
        return Home(self.apart / f"home-of-{name}")

    def start(self, *names: str) -> "Scattered":
        """Each from its own home."""
        for name in names or self.league.members():
            place = self.home_of(name)
            if not place.path.exists():
                place.path.mkdir(mode=0o755)
                place.league_file.write_text(self.founded.league_file.read_text())
                self.founded.member(name).rename(place.member(name))
            self.home = place
            try:
                super().start(name)
            finally:
                self.home = self.founded
        return self

    def door_of(self, name: str) -> Address:
        league = self.league
        if name in BROKERS:
            return league.broker(name).door
        return league.cluster_of_runner(name)[1].door if name == "far-1" else league.cluster(name).door

    def shown(self, name: str, token: str) -> Said:
        """What a door says to the bearer of a token."""
        path = "/v1/league" if name in BROKERS else "/v1/logs/1-1.0"
        return ask(
            self.door_of(name), nobody(self), "GET", path, headers={"Authorization": f"Bearer {token}"}
        )

    def believed(self, name: str, token: str) -> bool:
        said = self.shown(name, token)
        assert said.status in (200, 404) or said.code == "token_revoked", said
        return said.status != 401

    def until_refused(self, name: str, token: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while self.believed(name, token):
            assert time.monotonic() < deadline, f"{name} still believes the token:\n{self.log(name)[-2_000:]}"
            time.sleep(0.05)  # the outside world: there is nothing to await

    def log(self, name: str) -> str:
        path = self.home_of(name).member(name) / "log.jsonl"
        return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.fixture(scope="module")
def live() -> Iterator[Scattered]:
    with open_directory() as directory:
        found = Scattered(directory)
        try:
            yield found.start()
        finally:
            found.close()


def revoke(live: Scattered, broker: str, **wish: Any) -> dict[str, list[str]]:
    answer: dict[str, list[str]] = live.broker(broker).ask("POST", "/v1/access/revoke", wish)
    return answer


def test_a_revocation_reaches_every_door(live: Scattered) -> None:
    ann, bob = (ledger(live).create(Role.VIEWER, name, 1) for name in ("ann", "bob"))
    everybody = live.league.members()
    assert all(live.believed(name, ann) for name in everybody)
    answer = revoke(live, "b2", names=["ann"])
    assert answer == {"told": ["b2", "b1", "b3", "north", "far", "far-1"], "owed": []}
    for name in everybody:
        assert not live.believed(name, ann), name
        assert live.believed(name, bob), name


def test_whoever_was_away_is_told_when_it_is_back(live: Scattered) -> None:
    carl, dora = (ledger(live).create(Role.VIEWER, name, 1) for name in ("carl", "dora"))
    serial = next(given.access.serial for given in ledger(live).list_tokens() if given.access.name == "carl")
    for name in ("b3", "far-1"):
        live.kill(name)
    answer = revoke(live, "b1", serials=[serial])
    assert answer["owed"] == ["b3", "far-1"]
    for name in ("b1", "b2", "north", "far"):
        assert not live.believed(name, carl), name
    live.kill("b1")  # nobody is left who remembers that b3 is owed it
    live.start("b3", "far-1")
    for name in ("b3", "far-1"):
        live.until_refused(name, carl)
        assert live.believed(name, dora)
    live.start("b1")
    assert not live.believed("b1", carl)  # it was on its disk


@pytest.mark.parametrize("name", ["north", "far-1", "b3"])
def test_a_member_that_lost_its_list_asks_for_it(live: Scattered, name: str) -> None:
    lost = ledger(live).create(Role.VIEWER, f"lost-{name}", 1)
    revoke(live, "b1", names=[f"lost-{name}"])
    for broker in BROKERS:  # nobody owes anybody anything any more
        assert revoke(live, broker)["owed"] == []
    live.kill(name)
    (live.home_of(name).member(name) / "revoked.json").unlink()
    live.start(name)
    live.until_refused(name, lost)


def test_a_broker_that_hung_is_told_without_a_restart(live: Scattered) -> None:
    emil = ledger(live).create(Role.VIEWER, "emil", 1)
    live.kill("b3", signal.SIGSTOP)
    try:
        assert "b3" in revoke(live, "b1", names=["emil"])["owed"]
    finally:
        live.kill("b3", signal.SIGCONT)
    live.until_refused("b3", emil)


def test_the_command_does_it_from_anywhere(live: Scattered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSE_CONFIG", str(live.apart / "config.json"))
    monkeypatch.delenv("HANSE_HOME", raising=False)
    monkeypatch.delenv("HANSE_TOKEN", raising=False)
    save_context("test", context_of(live), make_current=True)
    fred, gina = (ledger(live).create(Role.VIEWER, name, 1) for name in ("fred", "gina"))

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "hanse", "access", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX).stdout

    assert live.believed("b3", fred)  # so that a broker has heard of fred: none is where the tokens are made
    assert "b1, b2, b3, north, far, far-1" in run("revoke", "fred")
    assert "Refused from now on by" in run("revoke", "--home", str(live.founded.path), "gina")
    for name in live.league.members():
        assert not live.believed(name, fred), name
        assert not live.believed(name, gina), name
    assert all(
        line.endswith("revoked")
        for line in run("list", "--home", str(live.founded.path)).splitlines()
        if line.startswith("gina")
    )


def test_a_name_that_nobody_knows_is_refused_with_those_like_it(
    live: Scattered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSE_CONFIG", str(live.apart / "config.json"))
    monkeypatch.delenv("HANSE_HOME", raising=False)
    monkeypatch.delenv("HANSE_TOKEN", raising=False)
    save_context("test", context_of(live), make_current=True)
    token = ledger(live).create(Role.VIEWER, "katharina", 1)
    assert live.believed("b3", token)  # from then on that broker knows the name

    def revoke_of(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "hanse", "access", "revoke", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)

    for where in ((), ("--home", str(live.founded.path))):
        said = revoke_of(*where, "katarina")
        assert said.returncode == ExitCode.USAGE, said
        assert "nobody called 'katarina' is known here, so nothing was revoked" in said.stderr
        assert "did you mean katharina?" in said.stderr
        assert "insist with '--unknown'" in said.stderr
    assert "katarina" not in live.broker("b1").ask("GET", "/v1/access/revocations")["names"]
    assert live.believed("b2", token)
    assert revoke_of("katarina", "--unknown").returncode == ExitCode.OK
    assert revoke_of("katarina").returncode == ExitCode.OK, (
        "it was revoked before: whom that is about is known"
    )
    assert revoke_of("katharina").returncode == ExitCode.OK
    assert not live.believed("b2", token)


def test_only_brokers_are_believed_about_what_is_revoked(live: Scattered) -> None:
    hugo = ledger(live).create(Role.VIEWER, "hugo", 1)
    wish = msgspec.json.encode({"names": {"hugo": (1 << 62) - 1}})
    for role, name in ((Role.WARDEN, "north"), (Role.RUNNER, "far-1")):
        context = nobody(live)
        context.load_cert_chain(live.home_of(name).member(name) / "identity.pem")
        said = ask(live.door_of("b1"), context, "POST", "/v1/access/revocations", wish)
        assert (said.status, said.code) == (403, "forbidden"), role
    status, said_of_admin = live.broker("b1").raw("POST", "/v1/access/revocations", {"names": {}})
    assert status == 403, said_of_admin
    assert live.believed("b1", hugo)


@pytest.mark.parametrize(
    "wish", [{"names": ["a b"]}, {"names": [""]}, {"serials": ["XY"]}, {"who": "ann"}, {"names": "ann"}]
)
def test_what_is_no_revocation_is_refused(live: Scattered, wish: dict[str, object]) -> None:
    status, said = live.broker("b1").raw("POST", "/v1/access/revoke", wish)
    assert (status, json.loads(said)["error"]["code"]) == (422, "bad_request")
