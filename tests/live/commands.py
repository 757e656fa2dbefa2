"""Somebody at the command line of a real league, who types what the documents say."""

import io
import os
import re
import select
import shlex
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from hanse.cli.embedded.background_start import start_member
from hanse.cli.main import run
from hanse.client.contexts import Context, save_context
from hanse.client.exit_codes import ExitCode
from hanse.league.file import load
from hanse.security.credentials import Credentials
from hanse.security.home import Home
from tests.live.harness import START_SECONDS_MAX, LiveLeague
from tests.live.ports import free_address

SECONDS_MAX = 120.0
"""Longer than anything here takes on a busy machine; reached only by a failure."""
LOOK_SECONDS = 0.05
DOCS = Path(__file__).parents[2] / "docs"
MEMBERS = {"broker", "warden", "runner"}
"""Commands that run in the foreground: services do it."""
NOT_NOW = "could not be asked"
"""What a join says whose broker starts again just now."""


def until(condition: Callable[[], bool], what: str) -> None:
    """Look at the outside world until it is as it should be."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"it never came to that: {what}"
        time.sleep(LOOK_SECONDS)  # there is nothing to await


def commands_on(page: str, heading: str) -> list[str]:
    """The commands of a page of ``docs`` under a heading, without what is said of them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    part = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


class Hand:
    """Types commands. ``HOST:7401``, ``HOST:7402``, ``BROKER:7402``, ``HOME``, ``OLD`` and ``TOKEN`` stand
    for what a person would put there; backups and traces are in the directory."""

    def __init__(self, live: LiveLeague, directory: Path) -> None:
        self.live = live
        self._directory = directory
        self._environment = {"HANSE_CONFIG": str(directory / "config.json")}
        self._token = ""
        self._ports: dict[str, str] = {}
        self.remember()

    def remember(self) -> None:
        """Keep a context with the members that serve now."""
        league = load(self.live.home.league_file)
        context = Context(
            league.name,
            credentials=str(self.live.credentials.directory),
            brokers={one.name: str(one.door) for one in league.serving_brokers},
            clusters={one.name: str(one.door) for one in league.serving_clusters},
        )
        with patch.dict(os.environ, self._environment):
            save_context("here", context, make_current=True)

    def types(self, line: str, status: int = ExitCode.OK) -> str:
        """Run a command that ends so, later if the league asks for patience; what it said."""
        program, *words = (self._meant(word, line) for word in shlex.split(line))
        assert program == "hanse", line
        if words[0] in MEMBERS:
            self._start(words[0], words[1])
            return ""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            out, told = io.StringIO(), io.StringIO()
            with patch.dict(os.environ, self._environment), redirect_stdout(out), redirect_stderr(told):
                found = run(words)
            said = out.getvalue() + told.getvalue()
            wait = found == ExitCode.UNAVAILABLE or NOT_NOW in said
            if found == status or not wait or time.monotonic() > deadline:
                break
            time.sleep(LOOK_SECONDS)  # as the hint says: a member starts again
        assert found == status, f"{line}: {found} {said}"
        if words[:2] == ["token", "create"]:
            self._token = out.getvalue().strip()
        return said

    def _meant(self, word: str, line: str) -> str:
        if word == "HOME":
            here = any(f" {verb} " in line for verb in ("token", "backup", "restore"))
            return str(self.live.home.path if here else self._directory / "newcomer")
        if word == "OLD" or word.endswith((".backup", ".csv")):
            return str(self._directory / word)
        if word in ("HOST:7401", "HOST:7402"):
            return self._ports.setdefault(f"{line} {word}", str(free_address()))
        if word == "BROKER:7402":
            brokers = load(self.live.home.league_file).serving_brokers
            return str(next(entry.door for entry in brokers if entry.name in self.live.processes))
        return self._token if word == "TOKEN" else word

    def _start(self, verb: str, name: str) -> None:
        """What the service of a newcomer does, in its own home."""
        home = Home(self._directory / "newcomer")
        identity = Credentials(home.member(name)).certificate().identity
        assert identity is not None
        assert identity.name == name
        reader, self.live.processes[name] = start_member(home, verb, name)
        readable, _, _ = select.select([reader], [], [], START_SECONDS_MAX)
        told = os.read(reader, 100) if readable else b""
        os.close(reader)
        log = home.member(name) / "log.jsonl"
        assert b"ready" in told, log.read_text(encoding="utf-8")[-3_000:]
        self.live.league = load(self.live.home.league_file)


def jobs_end(live: LiveLeague, jobs: list[str], broker: str) -> None:
    """Every job succeeds, asked of one broker, whoever has it."""
    for job in jobs:
        until(lambda job=job: _state(live, job, broker) == "succeeded", f"{job} succeeds")  # type: ignore[misc]


def _state(live: LiveLeague, job: str, broker: str) -> str:
    try:
        found = live.broker(broker).ask("GET", f"/v1/jobs/{job}/wait?timeout=1&local=1")
    except (AssertionError, OSError):  # it starts again, or has no copy yet
        return ""
    return str(found["state"])
