"""``hanse up`` when not every member can start, or one takes long: each stands for itself."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from hanse.cli.embedded.background_start import StartingMember, StartOutcome, await_members, start_member
from hanse.cli.embedded.running_members import PIDS, running_members
from hanse.client.exit_codes import ExitCode
from hanse.live.start_report import StartReport
from hanse.security.home import Home
from tests.live.harness import LiveLeague, open_directory, stop_launchers
from tests.live.test_faults_live import until

LEAGUE = """
league: harbour
timings: {runner_lease: 4s, cluster_lease: 8s, suspect_after: 3s, lease_grace: 500ms, start_deadline: 6s}
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, backend: "null", nodes: [{count: 2, cpus: 2}]}
  - {name: south, backend: "null", nodes: [{count: 2, cpus: 2}]}
"""
MEMBERS = {"b1", "b2", "north", "south"}
SECONDS_MAX = 300.0
CUT = b"cut"
IN_A_NAMESPACE = subprocess.run(
    ["unshare", "-m", "true"], check=False, capture_output=True, timeout=SECONDS_MAX
).returncode == 0  # fmt: skip


class Shell:
    """Somebody who types commands, with contexts and a home of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = Home(directory / "home")
        self.file = directory / "league.yaml"
        self.file.write_text(LEAGUE)
        own = {"HANSE_HOME": str(self.home.path), "HANSE_CONFIG": str(directory / "config.json")}
        self.environment = {**os.environ, **own}

    def hanse(self, *words: str, prefix: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*prefix, sys.executable, "-m", "hanse", *words],
            env=self.environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip

    def does(self, *words: str) -> str:
        """A command that must go well; what it printed."""
        done = self.hanse(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def is_up(self) -> Iterator[bool]:
        """Whether 'hanse up' finds everybody there."""
        while True:
            yield self.hanse("up").returncode == 0


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
        assert f"{broken} did not start: " in done.stderr
        assert f"'hanse journal repair {broken} --home {shell.home.path}'" in done.stderr
        others = MEMBERS - {broken}
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
    assert "south did not start: " in done.stderr
    assert "Traceback" not in done.stderr
    assert set(running_members(shell.home)) == {"b1", "b2", "north"}


@pytest.mark.parametrize("content", [b"garbage \xff", b"", CUT], ids=["garbage", "empty", "cut"])
def test_a_damaged_certificate_is_its_owners_trouble(shell: Shell, content: bytes) -> None:
    shell.does("up", "--from", str(shell.file))
    shell.does("down")
    file = shell.home.member("b1") / "identity.pem"
    good = file.read_bytes()
    file.write_bytes(content if content != CUT else good[: len(good) // 2])
    done = shell.hanse("up")
    assert done.returncode == 1, done
    assert f"b1 did not start: {file} is damaged: " in done.stderr
    assert "Traceback" not in (shell.home.member("b1") / "log.jsonl").read_text()
    assert set(running_members(shell.home)) == MEMBERS - {"b1"}
    shell.does("submit", "--wait", "--", "true")
    file.unlink()  # as was advised
    shell.does("up")
    assert set(running_members(shell.home)) == MEMBERS


def test_a_league_goes_on_without_its_authority(shell: Shell) -> None:
    shell.does("up", "--from", str(shell.file))
    shell.does("down")
    (shell.home.authority / "ca.key").write_text("garbage")
    done = shell.hanse("up")
    assert done.returncode == 0, done
    assert "the authority's files are damaged" in done.stderr
    (shell.home.member("b2") / "identity.pem").unlink()
    done = shell.hanse("up")
    assert done.returncode == 1, done
    assert "there are no certificates for b2" in done.stderr
    assert "Traceback" not in done.stderr


def test_ones_own_damaged_certificate_is_told(shell: Shell) -> None:
    shell.does("up", "--from", str(shell.file))
    file = shell.home.person("admin") / "identity.pem"
    file.write_text("garbage")
    done = shell.hanse("up")
    assert done.returncode == 1, done
    assert f"{file} is damaged" in done.stderr
    file.unlink()
    shell.does("up")
    shell.does("status")


@pytest.mark.parametrize("content", ["brokers: [", "brokers: 7", "\0\x07", ""])
def test_a_league_with_a_damaged_file_is_stopped(shell: Shell, content: str) -> None:
    shell.does("up", "--from", str(shell.file))
    shell.home.league_file.write_text(content)
    done = shell.hanse("up")
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done
    done = shell.hanse("down")
    assert done.returncode == 0, done
    assert f"The league in {shell.home.path} is down (4 members stopped)." in done.stdout
    assert "the league file cannot be used" in done.stderr
    assert not running_members(shell.home)


def test_a_home_may_be_a_link(shell: Shell) -> None:
    link = shell.directory / "link"
    link.symlink_to(shell.home.path)
    shell.home.path.mkdir()
    shell.does("up", "--home", str(link), "--from", str(shell.file))
    assert "(0 of 4 members started)" in shell.does("up")  # the same by either name
    assert set(running_members(shell.home)) == MEMBERS
    shell.does("down", "--home", str(link), "--delete")
    assert not shell.home.path.exists()
    assert not link.is_symlink()
    assert json.loads((shell.directory / "config.json").read_text())["contexts"] == {}


@pytest.mark.skipif(not IN_A_NAMESPACE, reason="no mount namespace can be made here")
def test_a_home_that_cannot_be_written_is_told(shell: Shell) -> None:
    shell.does("up", "--from", str(shell.file))
    shell.does("down")
    home = str(shell.home.path)
    closed = [
        "unshare",
        "-m",
        "sh",
        "-c",
        'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"',
        home,
    ]
    for words in (["up"], ["up", "--home", f"{home}/new"], ["broker", "b1"], ["down"]):
        done = shell.hanse(*words, prefix=closed)
        assert done.returncode == (0 if words == ["down"] else ExitCode.FILE), done
        assert "Traceback" not in done.stdout + done.stderr
        assert words == ["down"] or home in done.stderr


def test_two_leagues_live_beside_each_other(shell: Shell) -> None:
    shell.does("up", "--from", str(shell.file))
    other = shell.directory / "other"
    small = ("--clusters", "1", "--brokers", "1", "--nodes", "1")
    shell.file.write_text(shell.file.read_text().replace("b1", "first"))
    told = shell.does("up", "--home", str(other), "--from", str(shell.file))
    assert "Its context is 'harbour-2': another league has 'harbour'." in told
    assert "'hanse config use harbour' goes back" in told
    try:
        done = shell.hanse("up", "--home", str(other), *small)
        assert done.returncode == 0, done
        assert "was not changed: --clusters, --brokers, --nodes are for a new one" in done.stderr
        assert "2 brokers, 2 clusters" in done.stdout
        assert "first" in shell.does("status")
        assert "first" not in shell.does("--context", "harbour", "status")
        assert "(4 members stopped)" in shell.does("--context", "harbour-2", "down")
        assert set(running_members(shell.home)) == MEMBERS
        shell.does("up", "--context", "harbour-2")  # by its context alone
        assert set(running_members(Home(other))) == {"first", "b2", "north", "south"}
    finally:
        told = shell.does("down", "--home", str(other), "--delete")
    assert "Commands now use 'harbour'." in told
    assert "first" not in shell.does("status")


def test_a_slow_member_is_named_and_gets_ready_all_the_same() -> None:
    with open_directory() as directory:
        live = LiveLeague(directory / "home", LEAGUE)
        try:
            stopped = ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh"]
            for name, prefix, seconds in (("b2", [], SECONDS_MAX), ("b1", stopped, 0.5)):
                reader, process = start_member(live.home, "broker", name, prefix=prefix)
                live.processes[name] = process
                outcome = StartOutcome()
                waiting = {reader: StartingMember(name, process.pid, 0)}
                await_members(live.home, waiting, outcome, seconds, print)
                assert outcome == (StartOutcome(ready=["b2"]) if name == "b2" else StartOutcome(late=["b1"]))
            live.processes["b1"].send_signal(signal.SIGCONT)
            until(answers(live, "b1"))
            assert live.processes["b1"].poll() is None
        finally:
            live.close()


def test_nobody_dies_because_up_has_no_patience(shell: Shell) -> None:
    shell.environment["HANSE_START_SECONDS"] = "0"
    done = shell.hanse("up", "--from", str(shell.file))
    assert done.returncode == 1, done
    assert "south is still starting; 'hanse status' shows when it answers" in done.stderr
    started = running_members(shell.home)
    assert set(started) == MEMBERS
    del shell.environment["HANSE_START_SECONDS"]
    until(shell.is_up())
    assert running_members(shell.home) == started
    shell.does("submit", "--wait", "--", "true")


@pytest.mark.parametrize("forgotten", [False, True], ids=["", "before the number was written down"])
def test_an_up_that_is_killed_midway_leaves_nobody_behind(shell: Shell, forgotten: bool) -> None:
    first = subprocess.Popen(
        [sys.executable, "-m", "hanse", "up", "--from", str(shell.file)],
        env=shell.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(bool(running_members(shell.home)) for _ in itertools.count())
    first.kill()
    first.wait(SECONDS_MAX)
    if forgotten:
        (shell.home.path / PIDS).unlink(missing_ok=True)
    started = running_members(shell.home)
    assert started
    until(shell.is_up())
    now = running_members(shell.home)
    assert set(now) == MEMBERS
    assert started.items() <= now.items()  # they went on, and nobody was started twice
    shell.does("submit", "--wait", "--", "true")
    (shell.home.path / PIDS).unlink(missing_ok=True)
    assert "(4 members stopped)" in shell.does("down")


def test_who_lost_records_comes_back_under_a_new_name(shell: Shell) -> None:
    shell.does("up", "--from", str(shell.file))
    shell.does("submit", "--wait", "-n", "4", "--", "true")
    shell.does("down")
    damage(shell.home, "b1")
    shell.does("journal", "repair", "b1", "--yes")
    shell.file.write_text(LEAGUE.replace("{name: b2}", "{name: b2}, {name: b3}"))
    done = shell.hanse("up", "--from", str(shell.file))
    assert done.returncode == 1, done
    assert "4 of 5 members are there" in done.stdout
    assert "b1 did not start: the journal of b1 was repaired and has lost records" in done.stderr
    assert set(running_members(shell.home)) == {"b2", "b3", "north", "south"}
    shell.does("submit", "--wait", "-n", "2", "--", "true")


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

        def tell() -> None:
            for number in range(12):
                os.write(writer, b"replayed %d of 12\n" % number)
                time.sleep(0.5)  # so long it takes: more than 5 s in all
            os.write(writer, b"rea")
            os.write(writer, b"dy\n")

        member = Thread(target=tell)
        member.start()
        outcome, shown = StartOutcome(), list[str]()
        waiting = {reader: StartingMember("north", os.getpid(), 0)}
        await_members(Home(directory), waiting, outcome, 5.0, shown.append)
        member.join()
        os.close(writer)
        assert outcome.ready == ["north"]
        assert shown
        assert shown[0].startswith("north is starting: replayed ")


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_member_that_works_in_silence_is_waited_for(is_busy: bool) -> None:
    """As one that reads a long journal; not one that only sleeps."""
    script = "print(flush=True)\nwhile True: pass" if is_busy else "print(flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )  # fmt: skip
    reader, writer = os.pipe()
    shown = list[str]()

    def show(line: str) -> None:
        shown.append(line)
        if len(shown) == 2:
            os.write(writer, b"ready\n")

    try:
        with open_directory() as directory:
            assert process.stdout is not None
            process.stdout.readline()  # it has loaded what it needs
            outcome = StartOutcome()
            waiting = {reader: StartingMember("north", process.pid, 0)}
            await_members(Home(directory), waiting, outcome, 3.0, show)
    finally:
        os.close(writer)
        process.kill()
        process.communicate()
    assert outcome == (StartOutcome(ready=["north"]) if is_busy else StartOutcome(late=["north"]))
    assert shown == ["north is starting: it is working, but has reported no progress"] * (2 if is_busy else 0)


def test_a_member_tells_its_progress_to_whoever_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanse.live.start_report.REPORT_SECONDS", 0.0)
    reader, writer = os.pipe()
    report = StartReport(writer)
    for done in range(1_001):
        report.report_replayed(done, 1_000)
    assert os.read(reader, 4_096).startswith(b"replayed 0 of 1000\nreplayed 256 of 1000\n")
    for _ in range(10_000):
        report.report_replayed(0, 1_000)  # nobody reads: it does not wait
    os.close(reader)
    report.report_replayed(0, 1_000)
    report.report_ready()
