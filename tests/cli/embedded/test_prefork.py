"""The process that forks members: each is a process of its own, under the command line of its own."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.cli.embedded.home_league import load_or_create_league
from hanse.cli.embedded.prefork import READY_FD, PreforkError, PreforkServer, set_title
from hanse.security.home import Home
from tests.live.harness import LiveLeague, open_directory, stop_launchers

WAIT_SECONDS_MAX = 60.0
LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters: [{name: north, backend: "null", nodes: [{cpus: 4}]}]
"""
PAIR = ("b1", "b2")
LATE_MODULES = """
import os, signal, sys, threading
from hanse.cli.embedded.prefork import preload
preload()
early = set(sys.modules)
reader, writer = os.pipe()

def end_when_ready():
    said = os.read(reader, 16)
    print(said, *sorted(name for name in sys.modules.keys() - early if not name.startswith("encodings.")))
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_when_ready, daemon=True).start()
from hanse.cli.main import run
command, name, home = sys.argv[1:]
sys.exit(run([command, name, "--home", home, "--ready-fd", str(writer), "--founding"]))
"""
"""Program that does what the prefork process and a member do, and prints what only the member imported."""


@pytest.fixture
def live() -> Iterator[LiveLeague]:
    """A league of which nothing runs yet."""
    with open_directory() as directory:
        league = LiveLeague(directory / "home", LEAGUE)
        try:
            yield league
        finally:
            stop_launchers(directory)


def words(live: LiveLeague, name: str) -> list[str]:
    return ["broker", name, "--home", str(live.home.path), "--ready-fd", READY_FD]


def told(reader: int) -> bytes:
    """What a member says when it is ready; nothing if it ended instead."""
    readable, _, _ = select.select([reader], [], [], WAIT_SECONDS_MAX)
    assert readable, "it neither got ready nor ended"
    said = os.read(reader, 16)
    os.close(reader)
    return said


def ended(pid: int) -> None:
    """Wait until a process that is not our child is over."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    readable, _, _ = select.select([watch], [], [], WAIT_SECONDS_MAX)
    os.close(watch)
    assert readable, f"{pid} is still there"


def test_members_are_processes_of_their_own(live: LiveLeague) -> None:
    nursery = PreforkServer(os.environ)
    pids: dict[str, int] = {}
    try:
        readers = {}
        for name in PAIR:
            readers[name], pids[name] = nursery.fork(words(live, name), live.home.member(name) / "log.jsonl")
        for name in PAIR:
            assert told(readers[name]) == b"ready\n", live.log(name)
        nursery.close()
        for name, pid in pids.items():
            line = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode().split("\0")
            assert line[:-1] == [sys.executable, "-m", "hanse", *words(live, name)[:-1]]
            assert os.getsid(pid) == pid
        os.kill(pids["b1"], signal.SIGKILL)
        ended(pids["b1"])
        assert live.broker("b2").raw("GET", "/healthz")[0] == 200
    finally:
        for pid in pids.values():
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
            ended(pid)
        live.close()


def test_a_member_that_cannot_start_is_heard_of(live: LiveLeague) -> None:
    nursery = PreforkServer(os.environ)
    log = live.home.path / "log.jsonl"
    reader, _ = nursery.fork(words(live, "nobody"), log)
    assert told(reader) == b""
    nursery.close()
    assert "nobody" in log.read_text()
    live.close()


def test_a_nursery_that_died_says_so(live: LiveLeague) -> None:
    nursery = PreforkServer(os.environ)
    nursery._process.kill()
    nursery._process.wait()
    with pytest.raises(PreforkError):
        nursery.fork(words(live, "b1"), live.home.path / "log.jsonl")
    nursery.close()
    live.close()


def test_a_process_without_room_keeps_its_command_line() -> None:
    code = (
        "from hanse.cli.embedded.prefork import set_title; print(set_title(['x' * 5000]), set_title(['x']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert not set_title(["y"])


@pytest.mark.parametrize(("command", "name"), [("broker", "broker-1"), ("warden", "north")])
def test_members_import_nothing_after_the_fork(command: str, name: str) -> None:
    with open_directory() as directory:
        home = Home(directory / "home")
        load_or_create_league(home, None, 1, 1, 2)
        try:
            done = subprocess.run(
                [sys.executable, "-c", LATE_MODULES, command, name, str(home.path)],
                capture_output=True, text=True, check=False, timeout=WAIT_SECONDS_MAX,
            )  # fmt: skip
        finally:
            stop_launchers(directory)
    assert done.stdout.split() == [r"b'ready\n'"], done.stdout + done.stderr


def test_the_prefork_process_is_started_before_anything_heavy_is_imported() -> None:
    code = (
        "import sys, hanse.cli.commands.up\n"
        "heavy = ('numpy', 'importlib.metadata', 'yaml', 'hanse.registry', 'hanse.league.file')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
