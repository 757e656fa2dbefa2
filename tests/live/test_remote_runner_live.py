"""A runner on a machine of its own, from its token to the output of its tasks, with a user's commands.

The runner has its own home, as on another machine: nothing of it is in the home of its warden.
"""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hanse.cli.embedded.background_start import start_member
from hanse.client.exit_codes import ExitCode
from hanse.league.file import load
from hanse.security.home import Home
from tests.live.harness import open_directory, stop_launchers

SECONDS_MAX = 120.0
"""For one command; generous, because test machines are busy."""
LINES = 20_000
LEAGUE = """
league: far-away
brokers: [{name: b1}]
clusters:
  - name: north
    runners: [{name: far}]
    nodes:
      - {cpus: 1, memory: 64MiB, attributes: {zone: near}}
      - {cpus: 1, memory: 64MiB, attributes: {zone: far}, runner: far}
timings: {runner_lease: 4s, cluster_lease: 6s, suspect_after: 3s, lease_grace: 500ms}
"""


class Machines(NamedTuple):
    """A league on what could be two machines, and somebody who uses it."""

    here: Home
    there: Home
    env: dict[str, str]
    processes: dict[str, "subprocess.Popen[bytes]"]

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "hanse", *words],
            env=self.env, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip

    def ok(self, *words: str) -> str:
        done = self.command(*words)
        assert done.returncode == ExitCode.OK, f"{words}: {done.stdout}{done.stderr}{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        """The members' last words, for whoever reads a failure."""
        files = [*self.here.path.glob("*/log.jsonl"), *self.there.path.glob("*/log.jsonl")]
        return "".join(f"\n--- {file.parent.name}\n{file.read_text()[-1_500:]}" for file in files)

    def start(self, home: Home, verb: str, name: str) -> None:
        """Start a member, and wait until it is ready."""
        reader, self.processes[name] = start_member(home, verb, name)
        readable, _, _ = select.select([reader], [], [], SECONDS_MAX)
        said = os.read(reader, 16) if readable else b""
        os.close(reader)
        assert said, f"{name} did not get ready{self.logs()}"

    def kill(self, name: str) -> None:
        """End a member as a crash would."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(SECONDS_MAX)

    def far(self, *words: str) -> str:
        """Submit something that fits on the far node only; the job."""
        return self.ok("submit", "-q", "--where", 'zone == "far"', "--", *words).strip()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with open_directory() as directory:
        here, there = Home(directory / "here"), Home(directory / "there")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")}
        made = Machines(here, there, {**kept, "HANSE_CONFIG": str(directory / "config.json")}, {})
        try:
            settle(made, directory)
            yield made
        finally:
            for process in made.processes.values():
                process.kill()
                process.wait(SECONDS_MAX)
            stop_launchers(directory)


def settle(made: Machines, directory: Path) -> None:
    """Found the league here; the runner and the user join by tokens."""
    file = directory / "league.yaml"
    file.write_text(LEAGUE, encoding="utf-8")
    members = ("--member", "b1", "--member", "north")
    made.ok("init", "--home", str(made.here.path), *members, str(file))
    made.start(made.here, "broker", "b1")
    made.start(made.here, "warden", "north")
    door = str(load(made.here.league_file).brokers[0].door)
    for role, name, home in (("runner", "far", made.there.path), ("submitter", "ann", directory / "ann")):
        token = made.ok("token", "create", "--home", str(made.here.path), role, name).strip()
        made.ok("join", "--home", str(home), door, "--token", token)
    made.start(made.there, "runner", "far")


def test_the_output_of_a_far_task_comes_to_the_user(machines: Machines) -> None:
    job = machines.far("sh", "-c", "echo out; echo err >&2; pwd; exit 3")
    assert machines.command("wait", "-q", job).returncode == ExitCode.JOB_FAILED
    home = machines.there.member("far")
    assert machines.ok("logs", "--stdout", job).startswith(f"out\n{home}")
    assert machines.ok("logs", "--stderr", job) == "err\n"
    assert not (machines.here.path / "far").exists()


def test_much_output_arrives_whole(machines: Machines) -> None:
    job = machines.far("seq", str(LINES))
    machines.ok("wait", "-q", job)
    assert machines.ok("logs", job).split() == [str(number) for number in range(1, LINES + 1)]


def test_output_is_followed_while_it_is_written(machines: Machines) -> None:
    gate = machines.there.path.parent / "gate"
    os.mkfifo(gate)
    gate.chmod(0o666)
    job = machines.far("sh", "-c", f"echo first; read line < {gate}; echo $line")
    follower = subprocess.Popen(
        [sys.executable, "-m", "hanse", "logs", "-f", job],
        env=machines.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "first\n"
        gate.write_text("second\n", encoding="utf-8")
        rest, complaints = follower.communicate(timeout=SECONDS_MAX)
        assert (rest, follower.returncode) == ("second\n", ExitCode.OK), complaints
    finally:
        follower.kill()
        follower.communicate()


def test_a_far_task_and_its_output_outlive_their_runner(machines: Machines) -> None:
    gate = machines.there.path.parent / "second-gate"
    os.mkfifo(gate)
    gate.chmod(0o666)
    job = machines.far("sh", "-c", f"echo before; read line < {gate}; echo $line; exit 4")
    follower = subprocess.Popen(
        [sys.executable, "-m", "hanse", "logs", "-f", job],
        env=machines.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "before\n"
        machines.kill("far")
        machines.start(machines.there, "runner", "far")
        gate.write_text("after\n", encoding="utf-8")
        assert machines.command("wait", "-q", job).returncode == ExitCode.JOB_FAILED
        assert machines.ok("logs", job) == "before\nafter\n"
    finally:
        follower.kill()
        follower.communicate()


def test_a_runner_that_is_away_is_said_to_be(machines: Machines) -> None:
    """The last one here: the far machine is not there any more."""
    job = machines.far("echo", "x")
    machines.ok("wait", "-q", job)
    machines.kill("far")
    done = machines.command("logs", job)
    assert done.returncode != ExitCode.OK
    assert "the runner far of the cluster north does not answer" in done.stderr
    assert "Traceback" not in done.stderr
