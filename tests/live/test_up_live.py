"""``hanse up`` when not every member can start, or one takes long: each stands for itself."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hanse.app.member_pids import PIDS, running_members
from hanse.app.starting import Outcome, StartingMember, await_members, start_member
from hanse.live.home import Home
from hanse.live.start_report import StartReport
from tests.live.harness import LiveLeague, open_directory, stop_launchers
from tests.live.test_faults_live import until

LEAGUE = """
league: harbour
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, backend: "null", nodes: [{count: 2, cpus: 2}]}
  - {name: south, backend: "null", nodes: [{count: 2, cpus: 2}]}
"""
SECONDS_MAX = 300.0


class Shell:
    """Somebody who types commands, with contexts and a home of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = Home(directory / "home")
        self.file = directory / "league.yaml"
        self.file.write_text(LEAGUE)
        own = {"HANSE_HOME": str(self.home.path), "HANSE_CONFIG": str(directory / "config.json")}
        self.environment = {**os.environ, **own}

    def hanse(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "hanse", *words],
            env=self.environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip

    def does(self, *words: str) -> str:
        """A command that must go well; what it printed."""
        done = self.hanse(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def shell() -> Iterator[Shell]:
    with open_directory() as directory:
        found = Shell(directory)
        try:
            yield found
        finally:
            found.hanse("down")
            stop_launchers(directory)


def damage(home: Home, name: str) -> None:
    """Flip a bit in the middle of what a member's journal holds."""
    segment = min((home.member(name) / "journal").glob("*.seg"))
    content = bytearray(segment.read_bytes())
    content[len(bytes(content).rstrip(b"\0")) // 2] ^= 0x40
    segment.write_bytes(content)


@pytest.mark.parametrize("broken", ["b1", "north"])
def test_one_damaged_member_does_not_take_the_others_with_it(shell: Shell, broken: str) -> None:
    shell.does("up", "--from", str(shell.file))
    for _ in range(5):
        shell.does("submit", "--wait", "-n", "4", "--", "true")
    shell.does("down")
    damage(shell.home, broken)
    for attempt in ("first", "second"):  # also when the others run already
        done = shell.hanse("up")
        assert done.returncode == 1, (attempt, done)
        assert "3 of 4 members are there" in done.stdout
        assert f"{broken} is not there: " in done.stderr
        assert f"'hanse journal repair {broken}'" in done.stderr
        others = {"b1", "b2", "north", "south"} - {broken}
        assert set(running_members(shell.home)) == others
        assert set(msgspec.json.decode((shell.home.path / PIDS).read_bytes())) == others
        shell.does("submit", "--wait", "-n", "2", "--", "true")


def test_a_member_whose_directory_cannot_be_used_is_named(shell: Shell) -> None:
    shell.does("up", "--from", str(shell.file))
    shell.does("down")
    log = shell.home.member("south") / "log.jsonl"
    log.unlink()
    log.mkdir()
    done = shell.hanse("up")
    assert done.returncode == 1, done
    assert "south is not there: " in done.stderr
    assert "Traceback" not in done.stderr
    assert set(running_members(shell.home)) == {"b1", "b2", "north"}


def test_a_member_that_nobody_waits_for_any_longer_gets_ready_all_the_same() -> None:
    with open_directory() as directory:
        live = LiveLeague(directory / "home", LEAGUE)
        try:
            stopped = ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh"]
            outcome = Outcome()
            waiting = {}
            for name, prefix in (("b1", stopped), ("b2", [])):
                reader, process = start_member(live.home, "broker", name, prefix=prefix)
                live.processes[name] = process
                waiting[reader] = StartingMember(name, process.pid, 0)
            await_members(live.home, waiting, outcome, 20.0, print)
            assert (outcome.ready, outcome.late, outcome.gone) == (["b2"], ["b1"], {})
            live.processes["b1"].send_signal(signal.SIGCONT)
            until(answers(live, "b1"))
            assert live.processes["b1"].poll() is None
        finally:
            live.close()


def answers(live: LiveLeague, name: str) -> Iterator[bool]:
    """Whether a broker answers at its door."""
    while True:
        try:
            yield live.broker(name).raw("GET", "/healthz")[0] == 200
        except ConnectionError:
            yield False


def test_progress_is_waited_for_and_shown() -> None:
    """A member that makes progress is not given up, however long it takes in all."""
    with open_directory() as directory:
        reader, writer = os.pipe()
        script = (
            "import os, sys, time\n"
            f"for n in range(12):\n    os.write({writer}, b'replayed %d of 12\\n' % n)\n    time.sleep(0.5)\n"
            f"os.write({writer}, b'rea'); time.sleep(0.1); os.write({writer}, b'dy\\n')\n"
        )
        process = subprocess.Popen([sys.executable, "-c", script], pass_fds=(writer,))
        os.close(writer)
        outcome, shown = Outcome(), list[str]()
        member = StartingMember("north", process.pid, 0)
        await_members(Home(directory), {reader: member}, outcome, 4.0, shown.append)
        process.wait(SECONDS_MAX)
        assert outcome.ready == ["north"]
        assert shown
        assert shown[0].startswith("north is starting: replayed ")


def test_a_member_tells_its_progress_to_whoever_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanse.live.start_report.PAUSE_SECONDS", 0.0)
    reader, writer = os.pipe()
    report = StartReport(writer)
    for done in range(1_001):
        report.replayed(done, 1_000)
    assert os.read(reader, 4_096).startswith(b"replayed 0 of 1000\nreplayed 256 of 1000\n")
    for _ in range(10_000):
        report.replayed(0, 1_000)  # nobody reads: it does not wait
    os.close(reader)
    report.replayed(0, 1_000)
    report.ready()
