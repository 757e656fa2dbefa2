"""Tasks of a real league whose daemons are root: what is open to a task, and what is closed."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.security.access_token_issuer import AccessTokenIssuer
from hanse.security.certificate_authority import Authority
from hanse.security.identity import Role
from hanse.security.wall_time import wall_now
from tests.live.backends.attack import ALL, ATTACK, PYTHON
from tests.live.backends.places import process_with
from tests.live.harness import LiveLeague, open_directory, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemons become somebody else")
LEAGUE = """
brokers: [{name: b1}]
clusters:
  - name: north
    nodes: [{count: 2, cpus: 2, memory: 1GiB}]
"""


SECONDS_MAX = 180.0
KEYS = "head -c 9 {home}/*/identity.pem {home}/people/*/* {home}/authority/*; ls {home}/*/journal; echo done"


class Person:
    """Somebody with an access token of the role submitter, and nothing else."""

    def __init__(self, live: LiveLeague, name: str) -> None:
        self.live = live
        self.folder = live.home.path.parent / name
        self.folder.mkdir(mode=0o700)
        shutil.copy(live.credentials.authority_path, self.folder / "ca.pem")
        token = self.folder / "token"
        token.touch(0o600)
        ledger = AccessTokenIssuer(live.home, Authority.open(live.home.authority), wall_now)
        token.write_text(ledger.create(Role.SUBMITTER, name, 1))
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HANSE_")}
        self.env = {**kept, "HANSE_CONFIG": str(self.folder / "config.json")}
        place = ("--broker", str(live.league.brokers[0].door), "--ca", str(self.folder / "ca.pem"))
        self.run("config", "set", "far", *place, "--token-file", str(token))

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hanse", *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def said_by_task(self, *command: str) -> str:
        """What a task of this person writes."""
        job = self.run("submit", "--quiet", "--wait", "--", *command).split()[0]
        return self.run("logs", job)


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLeague]:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        yield league


def test_a_task_may_use_its_home_by_its_path(live: LiveLeague) -> None:
    script = "cd / && touch $HOME/x && cd $HOME && ls && pwd && stat -c %a ."
    job = live.submit({"command": ["sh", "-c", script]})
    assert live.wait(job)["state"] == "succeeded"
    name, place, mode = live.output(job).split()
    assert name == "x"
    assert Path(place).parent == live.home.member("north") / "tasks" / "work"
    assert mode == "700"


def test_what_a_member_keeps_beside_its_tasks_is_closed(live: LiveLeague) -> None:
    live.wait(live.submit({"command": "true"}))
    member = live.home.member("north")
    assert stat.S_IMODE(member.stat().st_mode) == 0o711
    others = {
        entry.name: stat.S_IMODE(entry.stat().st_mode) & 0o077
        for entry in member.iterdir()
        if entry.name != "tasks"
    }
    assert {"identity.pem", "journal", "log.jsonl"} <= set(others)
    assert set(others.values()) == {0}, others


def test_another_persons_task_gains_nothing(live: LiveLeague) -> None:
    ann, bob = Person(live, "ann"), Person(live, "bob")
    script = "echo precious > mine; echo set; exec sleep 3600"
    marks = ("--env", "SECRET=tok123", "--env", f"PLACE={live.home.path}")
    job = ann.run("submit", "--quiet", *marks, "--", "sh", "-c", script).strip()
    pid = process_with(f"PLACE={live.home.path}".encode(), b"sleep")
    work = Path(f"/proc/{pid}/cwd").readlink()
    tasks = live.home.member("north") / "tasks"
    assert work.parent == tasks / "work"
    output = tasks / "output" / f"{work.name}.stdout"
    assert output.read_text() == "set\n"
    said = bob.said_by_task(PYTHON, "-c", ATTACK, str(pid), str(work), str(output))
    lines = [line.split(":") for line in said.splitlines()]
    assert {line[0] for line in lines} == ALL
    assert {line[0] for line in lines if line[1] != "refused"} == set()
    assert bob.said_by_task("sh", "-c", KEYS.format(home=live.home.path)).split() == ["done"]
    assert Path(f"/proc/{pid}").exists()
    ann.run("cancel", job)
