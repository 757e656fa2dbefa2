"""A real league for tests: real daemons, real sockets, real processes, in a directory of its own."""

import http.client
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
import yaml

from hanse.cli.embedded.background_start import start_member
from hanse.cli.embedded.league_setup import PERSON, certify, create_league, with_ports
from hanse.client.transport import SingleRecordConnection
from hanse.league.config import BrokerEntry, ClusterEntry, LeagueConfig, RunnerEntry
from hanse.league.reader import league_from_data
from hanse.security.credentials import Credentials
from hanse.security.home import Home
from hanse.security.identity import Identity, Role

START_SECONDS_MAX = 60.0
"""A member that is not ready by then has failed; generous, because test machines are busy."""
WAIT_SECONDS_MAX = 120.0

QUICK = {"runner_lease": "4s", "cluster_lease": "6s", "suspect_after": "3s", "lease_grace": "500ms"}
"""Shorter leases, so that failures are over sooner."""


Place = Callable[[str], list[str]]
"""A member's name -> the beginning of the command that starts it where it belongs."""


def at_home(name: str) -> list[str]:
    """Every member runs where the test does."""
    del name
    return []


TOO_MANY = 429
BREATH_SECONDS = 0.05
"""Between two tries of somebody who has asked more than its share: a few requests' worth."""


class Door:
    """A connection to a member's door that opens itself again when the member comes back."""

    def __init__(self, live: "LiveLeague", role: Role, name: str, seconds: float = WAIT_SECONDS_MAX) -> None:
        league = live.league
        self._seconds = seconds
        entry: BrokerEntry | ClusterEntry | RunnerEntry
        if role is Role.RUNNER:
            _, entry = league.cluster_of_runner(name)
        else:
            entry = league.broker(name) if role is Role.BROKER else league.cluster(name)
        self._host, self._port = entry.door.host, entry.door.port
        self._context = live.credentials.client_context(Identity(league.name, role, name))
        self._connection: http.client.HTTPSConnection | None = None
        self.headers = http.client.HTTPMessage()
        """Of the last answer."""

    def raw(self, verb: str, path: str, body: object = None) -> tuple[int, bytes]:
        """One request; ``OSError`` if the member is not there."""
        if self._connection is None:
            self._connection = SingleRecordConnection(
                self._host, self._port, context=self._context, timeout=self._seconds
            )
        try:
            self._connection.request(verb, path, None if body is None else msgspec.json.encode(body))
            answer = self._connection.getresponse()
            self.headers = answer.headers
            return answer.status, answer.read()
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise ConnectionError(str(error)) from error

    def ask(self, verb: str, path: str, body: object = None) -> Any:
        """The decoded answer of a request that must succeed, later if the door asks for patience."""
        status, answer = self.raw(verb, path, body)
        while status == TOO_MANY:
            time.sleep(BREATH_SECONDS)
            status, answer = self.raw(verb, path, body)
        assert status == 200, f"{verb} {path}: {status} {answer.decode()}"
        return msgspec.json.decode(answer)

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class LiveLeague:
    """A league and the processes of its members."""

    def __init__(
        self, directory: Path, description: str, digests: bool = False, place: Place = at_home
    ) -> None:
        league = league_from_data(yaml.safe_load(description))
        assert isinstance(league, LeagueConfig), league
        self.home = Home(directory)
        self.league = with_ports(league)
        certify(self.home, self.league, create_league(self.home, self.league))
        self.credentials = Credentials(self.home.person(PERSON))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.doors: dict[str, Door] = {}
        self._flags = ["--record-digests"] if digests else []
        self._place = place
        self._prefix: list[str] = []

    def start_prefixed(self, prefix: list[str], *names: str) -> Self:
        """Start members under another program, which changes the world that they see."""
        self._prefix = prefix
        try:
            return self.start(*names)
        finally:
            self._prefix = []

    def start(self, *names: str) -> Self:
        """Start members (default: all that do not run), and wait until they are ready."""
        verbs = {
            **{entry.name: "warden" for entry in self.league.clusters},
            **{runner.name: "runner" for entry in self.league.clusters for runner in entry.runners},
            **{entry.name: "broker" for entry in self.league.brokers},
        }
        readers: dict[int, str] = {}
        for name in names or [name for name in verbs if name not in self.processes]:
            reader, self.processes[name] = start_member(
                self.home, verbs[name], name, self._flags, [*self._place(name), *self._prefix]
            )
            readers[reader] = name
        deadline = time.monotonic() + START_SECONDS_MAX
        while readers:
            readable, _, _ = select.select(list(readers), [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"{sorted(readers.values())} did not get ready"
            for reader in readable:
                told = os.read(reader, 4_096)
                if told and b"ready" not in told:
                    deadline = time.monotonic() + START_SECONDS_MAX  # it makes progress
                    continue
                name = readers.pop(reader)
                os.close(reader)
                assert told, f"{name} ended at once:\n{self.log(name)[-3_000:]}"
        return self

    def settle(self) -> Self:
        """Wait until every broker has seen every cluster."""
        for entry in self.league.brokers:
            deadline = time.monotonic() + START_SECONDS_MAX
            while self.broker(entry.name).raw("GET", "/readyz")[0] != 200:
                assert time.monotonic() < deadline, f"{entry.name} does not see all clusters"
                time.sleep(0.02)  # the outside world: there is nothing to await
        return self

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal; after a deadly one the process is gone when this comes back."""
        process = self.processes[name]
        process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            process.wait(WAIT_SECONDS_MAX)
            del self.processes[name]
            if name in self.doors:
                self.doors.pop(name).close()

    def broker(self, name: str = "b1") -> Door:
        """A broker's door."""
        return self._door(Role.BROKER, name)

    def cluster(self, name: str) -> Door:
        """A cluster's door."""
        return self._door(Role.WARDEN, name)

    def runner(self, name: str) -> Door:
        """The door of a runner on a machine of its own."""
        return self._door(Role.RUNNER, name)

    def _door(self, role: Role, name: str) -> Door:
        if name not in self.doors:  # making one reads certificates, which takes as long as a request
            self.doors[name] = Door(self, role, name)
        return self.doors[name]

    def log(self, name: str) -> str:
        """What a member has logged."""
        path = self.home.member(name) / "log.jsonl"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def close(self) -> None:
        """Stop everything."""
        for door in self.doors.values():
            door.close()
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self.processes.values():
            process.wait(WAIT_SECONDS_MAX)

    # --- using it -------------------------------------------------------------------------------------------

    def submit(self, job: dict[str, Any], broker: str = "b1") -> str:
        """Submit a job that must be taken; its id."""
        result = self.broker(broker).ask("POST", "/v1/jobs", {"jobs": [job]})["results"][0]
        assert "job" in result, result
        return str(result["job"])

    def wait(self, job: str, broker: str = "b1") -> dict[str, Any]:
        """Wait for a job's end."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            row: dict[str, Any] = self.broker(broker).ask("GET", f"/v1/jobs/{job}/wait?timeout=30&local=1")
            if row["state"] in ("succeeded", "failed", "cancelled"):
                return row
            assert time.monotonic() < deadline, f"{job} has not ended: {row}"

    def tasks(self, job: str, broker: str = "b1") -> list[dict[str, Any]]:
        """A job's tasks."""
        found_tasks: list[dict[str, Any]] = self.broker(broker).ask(
            "GET", f"/v1/jobs/{job}/tasks?limit=1000&local=1"
        )["tasks"]
        return found_tasks

    def output(self, job: str, index: int = 0, stream: str = "stdout", broker: str = "b1") -> str:
        """What a task wrote."""
        task = next(task for task in self.tasks(job, broker) if task["index"] == index)
        path = f"/v1/logs/{job}.{index}?attempt={task['attempt']}&stream={stream}&node={task['node']}"
        status, content = self.cluster(task["cluster"]).raw("GET", path)
        if status == 307:
            runner = self.league.cluster(task["cluster"]).nodes[task["node"]].runner
            status, content = self.runner(runner).raw("GET", path)
        assert status == 200, content
        return content.decode()


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that tasks, who are nobody, may enter: pytest keeps its own for root alone."""
    with tempfile.TemporaryDirectory(prefix="hanse-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def running(
    directory: Path, description: str, digests: bool = False, place: Place = at_home
) -> Iterator[LiveLeague]:
    """A league that is up, and is gone afterwards with all its processes."""
    live = LiveLeague(directory, description, digests, place)
    try:
        yield live.start().settle()
    finally:
        live.close()
        stop_launchers(directory)


def stop_launchers(directory: Path) -> None:
    """End the launchers and supervisors that outlive their daemons by design."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            target = str((path / "cwd").readlink())
            program = str((path / "exe").readlink())
        except OSError:
            continue
        if target.startswith(str(directory)) and program.endswith("_supervisor"):
            os.kill(int(path.name), signal.SIGKILL)
