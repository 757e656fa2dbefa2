"""No two attempts ever have one device, whatever is killed; the tasks themselves check that."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hanse.live.backends.process.cgroups import choose_limits
from tests.live.backends.places import alive, processes_of

ROOT = Path(__file__).parents[4]
TASKS = 40
STRIKES = 36
"""Kills, if the tasks are not all done before."""
SECONDS_MAX = 120.0

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="the tasks lock by 'flock'")
GROUPS_WORK = choose_limits("auto", Path("/hanse-test")).driver != "rlimit"


def start(directory: Path, driver: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.live.backends.process.device_daemon"]
    daemon = subprocess.Popen(
        [*command, str(directory), driver, str(TASKS)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert daemon.stdout is not None
    assert "launcher" in json.loads(daemon.stdout.readline())
    return daemon


def bury(daemon: subprocess.Popen[str]) -> None:
    """End a daemon by force, if it has not ended."""
    daemon.kill()
    daemon.wait()
    assert daemon.stdout is not None
    daemon.stdout.close()


def helpers(directory: Path) -> dict[int, int]:
    """The launcher, supervisors and watchdogs of this directory, with their parents."""
    found = {}
    for pid in processes_of(directory / "tasks"):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if words[0].endswith(b"_supervisor"):
            found[pid] = int(stat.rpartition(")")[2].split()[1])
    return found


def strike(directory: Path, daemon: subprocess.Popen[str], rng: random.Random) -> bool:
    """Kill something, or everything; True if the daemon was among it."""
    parents = helpers(directory)
    ours = list(parents)
    # the launcher has no parent among them, a watchdog has the launcher, a supervisor a watchdog
    depth = {pid: (parents[pid] in parents) + (parents.get(parents[pid], 0) in parents) for pid in ours}
    kinds = ["launcher", "supervisor", "watchdog", "daemon", "launcher and supervisors", "all helpers", "all"]
    kind = rng.choice(kinds)
    wanted = {"launcher": (0,), "watchdog": (1,), "supervisor": (2,), "launcher and supervisors": (0, 2)}
    victims = [pid for pid in ours if depth[pid] in wanted.get(kind, (0, 1, 2))]
    if kind in ("launcher", "supervisor", "watchdog"):
        victims = victims and [rng.choice(victims)]
    if kind == "daemon":
        victims = []
    if kind in ("daemon", "all"):
        daemon.kill()
    for pid in victims:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    return kind in ("daemon", "all")


@pytest.mark.parametrize(
    "driver",
    [
        pytest.param("auto", marks=pytest.mark.skipif(not GROUPS_WORK, reason="no control groups here")),
        "rlimit",
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_kill_lets_two_tasks_share_a_device(place: Path, driver: str, seed: int) -> None:
    rng = random.Random(seed)
    for name in ("done", "tried"):
        (place / name).mkdir()
    for index in range(2):
        (place / f"gpu{index}").touch()
        (place / f"gpu{index}").chmod(0o666)
    wrong = place / "wrong"
    wrong.touch()
    wrong.chmod(0o666)
    daemon = start(place, driver)
    try:
        for _ in range(STRIKES):
            try:
                daemon.wait(rng.uniform(0.02, 0.3))
                break  # all tasks are done
            except subprocess.TimeoutExpired:
                pass
            if strike(place, daemon, rng):
                bury(daemon)
                daemon = start(place, driver)
        daemon.wait(SECONDS_MAX)
        assert daemon.returncode == 0
    finally:
        bury(daemon)
    assert wrong.read_text() == ""
    assert len(list((place / "done").iterdir())) == TASKS
    assert len(list((place / "tried").iterdir())) > TASKS, "no kill has hit an attempt"
