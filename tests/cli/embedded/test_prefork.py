"""The process that forks members: each is a process of its own, under the command line of its own."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.cli.embedded.prefork import READY_FD, PreforkError, PreforkServer, set_title
from tests.live.harness import LiveLeague, open_directory, stop_launchers

WAIT_SECONDS_MAX = 60.0
LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters: [{name: north, backend: "null", nodes: [{cpus: 4}]}]
"""
PAIR = ("b1", "b2")


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
