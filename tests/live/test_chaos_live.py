"""Real processes are killed at random while a thousand tasks run: nothing is lost, nothing runs twice."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from tests.live.execution_log import Life, command, complaints, lives
from tests.live.harness import LiveLeague, open_directory, running

TASKS = 1_000
KILLS = ["broker"] * 8 + ["warden"] * 8 + ["supervisor"] * 5 + ["league"] * 3
"""What is killed, in an order that the seed decides."""
SEED = 20_261_116

LEAGUE = """
timings: {runner_lease: 4s, cluster_lease: 8s, suspect_after: 3s, lease_grace: 500ms, start_deadline: 6s}
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, nodes: [{count: 2, cpus: 6, memory: 512MiB}]}
  - {name: south, nodes: [{count: 2, cpus: 6, memory: 512MiB}]}
"""
SLOTS = {f"{cluster}/{node}": 6 for cluster in ("north", "south") for node in (0, 1)}


def test_nothing_is_lost_and_nothing_runs_twice() -> None:
    choose = random.Random(SEED)
    plan = choose.sample(KILLS, len(KILLS))
    with open_directory() as directory, running(directory / "home", LEAGUE, digests=True) as live:
        log = _shared_log(directory)
        jobs = [
            live.submit({"count": TASKS // 10, "memory": "16MiB", "command": command(log, "0.03")}, broker)
            for broker in ("b1", "b2") * 5
        ]
        for kind in plan:
            _strike(live, choose, kind)
        done = _all_done(live, jobs)
        found = lives(log)
        assert len(done) == TASKS
        assert not (wrong := complaints(found, done, SLOTS)), wrong
        _replays_alike(live)


def test_the_judge_sees_what_is_wrong() -> None:
    """The judge itself: each broken promise is told."""
    fine = [Life("1-0.0", 1, "n/0", 10, 20, True), Life("1-0.1", 1, "n/0", 15, 25, True)]
    assert complaints(fine, {"1-0.0": 1, "1-0.1": 1}, {"n/0": 2}) == []
    assert "never said so" in complaints(fine, {"1-0.0": 2}, {"n/0": 2})[0]
    assert "held 2" in complaints(fine, {}, {"n/0": 1})[0]
    twice = [*fine, Life("1-0.0", 2, "m/0", 18, 30, True)]
    assert "began while" in complaints(twice, {}, {})[0]


def _shared_log(directory: Path) -> Path:
    """A file that tasks, who are nobody, may append to."""
    log = directory / "lives"
    log.touch()
    log.chmod(0o666)
    return log


def _strike(live: LiveLeague, choose: random.Random, kind: str) -> None:
    """Kill something, let the world see it for a moment, and bring it back."""
    time.sleep(choose.uniform(0.1, 0.6))  # a fault comes when it comes: there is nothing to await
    if kind == "supervisor":
        for pid in choose.sample(found := supervisors(live), min(2, len(found))):
            with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(pid, signal.SIGKILL)
        return
    names = {"broker": [choose.choice(["b1", "b2"])], "warden": [choose.choice(["north", "south"])]}.get(
        kind, ["b1", "b2", "north", "south"]
    )
    for name in names:
        live.processes[name].send_signal(signal.SIGKILL)
    for name in names:
        live.kill(name)
    time.sleep(choose.choice([0.0, 0.0, 0.5, 2.0]))  # as above
    live.start(*names)


def supervisors(live: LiveLeague) -> list[int]:
    """Launchers and supervisors of this league that have somebody to look after. Those without a child may be
    tasks on the point of becoming another program, and whoever kills a task makes it fail."""
    found: list[int] = []
    parents: dict[int, None] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text(encoding="utf-8", errors="replace")
            parents[int(stat.rpartition(")")[2].split()[1])] = None
            home, program = str((path / "cwd").readlink()), str((path / "exe").readlink())
        except OSError:
            continue
        if home.startswith(str(live.home.path)) and program.endswith("_supervisor"):
            found.append(int(path.name))
    return sorted(pid for pid in found if pid in parents)


def _all_done(live: LiveLeague, jobs: list[str]) -> dict[str, int]:
    """Every task and the attempt that counted, as the owners tell it."""
    done: dict[str, int] = {}
    for job in jobs:
        owner = _owner(live, job)
        row = live.wait(job, owner)
        assert row["state"] == "succeeded", _troubles(live, job, owner)
        done |= {f"{job}.{task['index']}": task["attempt"] for task in live.tasks(job, _owner(live, job))}
    return done


def _troubles(live: LiveLeague, job: str, owner: str) -> list[Any]:
    """What is to be known of the tasks that did not succeed."""
    return [
        (task["index"], task["attempt"], task["cluster"], task["outcome"], task["code"], task["note"])
        for task in live.tasks(job, owner)
        if task["state"] != "succeeded"
    ][:10]


def _owner(live: LiveLeague, job: str) -> str:
    for name in ("b1", "b2"):
        status, _ = live.broker(name).raw("GET", f"/v1/jobs/{job}")
        if status == 200:
            return name
    raise AssertionError(f"nobody speaks for {job}")


def _replays_alike(live: LiveLeague) -> None:
    """The journals of this run, taken again through fresh machines, give the very commands that it gave."""
    from click.testing import CliRunner

    from hanse.cli.commands.journal import journal

    for name in ("b1", "b2", "north", "south"):
        live.kill(name, signal.SIGTERM)
        told = CliRunner().invoke(journal, ["replay", "--home", str(live.home.path), name])
        assert told.exit_code == 0, told.output
        assert "no difference" in told.output
        assert " 0 compared" not in told.output
