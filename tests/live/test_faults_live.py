"""What can happen to the members of a real league, one thing at a time."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from hanse.cli.main import hanse
from tests.live.execution_log import command, complaints, lives
from tests.live.harness import LiveLeague, open_directory, running

LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, nodes: [{count: 2, cpus: 2, memory: 256MiB}]}
  - {name: south, nodes: [{count: 2, cpus: 2, memory: 256MiB}]}
"""
QUICK = (
    "timings: {runner_lease: 3s, cluster_lease: 4s, suspect_after: 3s, lease_grace: 500ms, "
    "start_deadline: 5s}"
)
STALL_SECONDS_MAX = 15


def until(condition: "Iterator[bool]", seconds: float = 60.0) -> None:
    """Look at the outside world until it is as it should be."""
    deadline = time.monotonic() + seconds
    while not next(condition):
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)  # there is nothing to await


def state(live: LiveLeague, job: str, wanted: tuple[str, ...], broker: str) -> Iterator[bool]:
    while True:
        yield live.broker(broker).ask("GET", f"/v1/jobs/{job}?local=1")["row"]["state"] in wanted


def fill(file: Path) -> None:
    """Write until the disk has no room."""
    with file.open("ab", buffering=0) as open_file:
        while True:
            open_file.write(bytes(4096))


def taking(live: LiveLeague) -> Iterator[bool]:
    """Tell if the first broker takes a job."""
    while True:
        try:
            live.submit({"command": "true"})
        except AssertionError:
            yield False
        else:
            yield True


def turning_away(live: LiveLeague, ballast: Path, taken: list[str]) -> Iterator[bool]:
    """Tell if the first broker turns a job away for its full disk. Its own files give room back now and then,
    which the ballast takes again."""
    while True:
        with pytest.raises(OSError, match="No space"):
            fill(ballast)
        try:
            taken.append(live.submit({"command": "true"}))
        except AssertionError as error:
            if "disk of this broker is nearly full" not in str(error):
                raise
            yield True
        else:
            yield False


@contextmanager
def shared_log() -> Iterator[Path]:
    with open_directory() as directory:
        log = directory / "lives"
        log.touch()
        log.chmod(0o666)
        yield log


def test_waiting_jobs_of_a_dead_broker_start_elsewhere_within_fifteen_seconds() -> None:
    """Slurm's federation leaves them waiting for ever."""
    with shared_log() as log, open_directory() as directory, running(directory / "home", LEAGUE) as live:
        filler = live.submit({"count": 8, "command": "sleep 3"}, "b2")
        until(state(live, filler, ("running",), "b2"))
        jobs = [live.submit({"command": command(log, "0.01")}, "b1") for _ in range(10)]
        live.kill("b1")
        died = time.time_ns()
        for job in jobs:
            assert live.wait(job, "b2")["state"] == "succeeded"
        found = lives(log)
        assert len(found) == 10
        assert max(life.begin for life in found) - died < STALL_SECONDS_MAX * 10**9


def test_tasks_survive_the_restart_of_every_daemon_with_status_and_output() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        job = live.submit({"count": 4, "command": "echo before; sleep 3; echo after; exit $HANSE_TASK"})
        until(state(live, job, ("running",), "b1"))
        until(iter(lambda: live.broker().ask("GET", f"/v1/jobs/{job}")["row"]["running"] == 4, None))
        for name in list(live.processes):
            live.kill(name)
        live.start().settle()
        row = live.wait(job)
        assert (row["succeeded"], row["failed"]) == (1, 3)
        for task in live.tasks(job):
            assert (task["attempt"], task["code"]) == (1, task["index"])
            assert live.output(job, task["index"]) == "before\nafter\n"


def test_a_warden_that_is_stopped_for_longer_than_its_lease_runs_nothing_twice() -> None:
    with shared_log() as log, open_directory() as directory:
        with running(directory / "home", QUICK + LEAGUE) as live:
            job = live.submit({"count": 12, "command": command(log, "0.5")})
            until(state(live, job, ("running",), "b1"))
            live.processes["north"].send_signal(signal.SIGSTOP)
            other = live.submit({"count": 4, "command": "true", "clusters": {"deny": ["north"]}})
            assert live.wait(other)["state"] == "succeeded"
            assert live.wait(job)["state"] == "succeeded"
            live.processes["north"].send_signal(signal.SIGCONT)
            done = {f"{job}.{task['index']}": task["attempt"] for task in live.tasks(job)}
        slots = {f"{cluster}/{node}": 2 for cluster in ("north", "south") for node in (0, 1)}
        assert not (wrong := complaints(lives(log), done, slots)), wrong


def test_a_journal_that_is_damaged_in_the_middle_is_refused_and_can_be_mended() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        for _ in range(20):
            live.wait(live.submit({"command": "true"}))
        live.kill("b1")
        segment = min((live.home.member("b1") / "journal").glob("*.seg"))
        content = bytearray(segment.read_bytes())
        written = len(bytes(content).rstrip(b"\0"))
        content[written // 2] ^= 0x40
        segment.write_bytes(content)
        with pytest.raises(AssertionError, match="ended at once"):
            live.start("b1")
        live.processes.pop("b1").wait()
        assert segment.name in live.log("b1").splitlines()[-1]
        home = ["--home", str(live.home.path), "b1"]
        assert CliRunner().invoke(hanse, ["journal", "verify", *home]).exit_code == 1
        mended = CliRunner().invoke(hanse, ["journal", "repair", "--yes", *home])
        assert mended.exit_code == 0, mended.output
        assert CliRunner().invoke(hanse, ["journal", "verify", *home]).exit_code == 0
        with pytest.raises(AssertionError, match="forgotten promises"):
            live.start("b1")
        live.processes.pop("b1").wait()
        assert live.wait(live.submit({"command": "true"}, "b2"), "b2")["state"] == "succeeded"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")
def test_a_full_disk_is_waited_out_and_loses_nothing() -> None:
    """A broker on a small disk refuses new jobs in time; filled by somebody else it waits, and goes on."""
    with open_directory() as directory:
        live = LiveLeague(directory / "home", LEAGUE)
        place = live.home.member("b1")
        files = {path.name: path.read_bytes() for path in place.iterdir()}
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0711", "tmpfs", place], check=True)
        try:
            for name, content in files.items():
                (place / name).write_bytes(content)
            live.start().settle()
            taken = [live.submit({"command": "true"})]
            big = {"command": ["true", "x" * 50_000]}
            with pytest.raises(AssertionError, match="disk of this broker is nearly full"):
                taken.extend(live.submit(big) for _ in range(2_000))
            assert len(taken) > 1
            ballast = place / "ballast"
            until(turning_away(live, ballast, taken))
            other = live.submit({"count": 4, "command": ["sh", "-c", "exit 0"]}, "b2")
            assert live.wait(other, "b2")["succeeded"] == 4
            until(turning_away(live, ballast, taken))
            assert live.processes["b1"].poll() is None
            ballast.unlink()
            subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
            until(taking(live))
            for job in taken:
                assert live.wait(job)["state"] == "succeeded"
        finally:
            live.close()
            subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="a clock of one's own takes root")
def test_a_clock_that_jumps_does_not_turn_a_member_round() -> None:
    """Start a warden and a broker with a clock that is a day ahead, then with the true one again."""
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        before = live.submit({"command": "true"})
        assert live.wait(before)["state"] == "succeeded"
        for prefix in (["unshare", "--time", "--boottime", "86400", "--monotonic", "86400", "--"], []):
            for name in ("b1", "north"):
                live.kill(name)
                live.start_prefixed(prefix, name)
            live.settle()
            job = live.submit({"count": 8, "command": "true"})
            assert live.wait(job)["succeeded"] == 8
            assert live.wait(before)["state"] == "succeeded"
