"""One large job measured: ``python bench/large_job.py --json FILE [--tasks N]``.

A real league on this machine. Somebody submits ``true`` and waits for it, again and again (the door's own
requests over one connection, as ``hanse submit --wait -- true`` makes them), first with nothing else going
on, then while somebody else's job of a million tasks is submitted, listed and cancelled. Told are, for each
phase, the 50th and 99th percentile of what the former waits, how long the latter takes, and at the end the
longest that one event has kept the loop of each member (processor time). The first phase is what the same
machine does at the same load without the large job: compare with that, machines are noisy.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.live.harness import Door, LiveLeague, running

from hanse.live.identity.identity import Role

LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, nodes: [{count: 2, cpus: 1, memory: 512MiB}]}
  - {name: south, nodes: [{count: 2, cpus: 1, memory: 512MiB}]}
"""
TASKS = 1_000_000
CALM_SECONDS = 10.0
PAUSE = 0.05
PAGE = 1_000
BROKERS = ("b1", "b2")
MEMBERS = (*BROKERS, "north", "south")


class Other(threading.Thread):
    """Somebody with small jobs, who waits for each."""

    def __init__(self, live: LiveLeague) -> None:
        super().__init__(daemon=True)
        self._door = Door(live, Role.BROKER, BROKERS[0])  # a connection of its own
        self.phase = "calm"
        self.seconds: dict[str, list[float]] = {}
        self.over = False

    def run(self) -> None:
        """One job after another, each noted with the phase in which it began."""
        while not self.over:
            phase, begin = self.phase, time.perf_counter()
            job = {"command": ["true"], "clusters": {"allow": ["north"]}}
            (result,) = self._door.ask("POST", "/v1/jobs", {"jobs": [job]})["results"]
            row = self._door.ask("GET", f"/v1/jobs/{result['job']}/wait?timeout=60")
            assert row["state"] == "succeeded", row
            self.seconds.setdefault(phase, []).append(time.perf_counter() - begin)
            time.sleep(PAUSE)


def quantiles(seconds: list[float]) -> dict[str, float]:
    """The middle, the 99th percentile and the worst, in milliseconds."""
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        "p50_ms": round(1e3 * ordered[len(ordered) // 2], 1),
        "p99_ms": round(1e3 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 1),
        "worst_ms": round(1e3 * ordered[-1], 1),
    }


def longest(live: LiveLeague) -> dict[str, float]:
    """For how long one event has kept each member's loop, in milliseconds."""
    found = {}
    for name in MEMBERS:
        door = live.broker(name) if name in BROKERS else live.cluster(name)
        lines = door.raw("GET", "/metrics")[1].decode().splitlines()
        (value,) = [line.split()[1] for line in lines if line.startswith("hanse_event_longest_seconds ")]
        found[name] = round(1e3 * float(value), 1)
    return found


def timed(work: Callable[[], Any]) -> float:
    """How long something takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def listed(live: LiveLeague, job: str) -> None:
    """The job, and every task of it, page by page."""
    live.broker().ask("GET", f"/v1/jobs/{job}")
    after, seen = "", 0
    while seen < PAGE * 100:
        answer = live.broker().ask("GET", f"/v1/jobs/{job}/tasks?limit={PAGE}{after}")
        seen += len(answer["tasks"])
        if not answer.get("next"):
            return
        after = f"&after={answer['next']}"


def measured(tasks: int) -> dict[str, Any]:
    """All phases in one league."""
    with tempfile.TemporaryDirectory(prefix="hanse-bench-") as name:
        Path(name).chmod(0o755)
        with running(Path(name) / "home", LEAGUE) as live:
            other = Other(live)
            other.start()
            time.sleep(CALM_SECONDS)
            before = longest(live)
            took: dict[str, float] = {}
            spec = {"command": ["sleep", "600"], "count": tasks, "clusters": {"allow": ["south"]}}
            other.phase = "submit"
            jobs: list[str] = []
            took["submit"] = timed(lambda: jobs.append(live.submit(spec)))
            time.sleep(2.0)
            other.phase = "list"
            took["list"] = timed(lambda: listed(live, jobs[0]))
            other.phase = "cancel"
            took["cancel"] = timed(lambda: live.broker().ask("POST", f"/v1/jobs/{jobs[0]}/cancel"))
            took["ended"] = timed(lambda: live.wait(jobs[0]))
            other.over = True
            other.join(60)
            return {
                "tasks": tasks,
                "others": {phase: quantiles(seconds) for phase, seconds in other.seconds.items()},
                "took_s": {what: round(seconds, 2) for what, seconds in took.items()},
                "longest_event_ms_before": before,
                "longest_event_ms": longest(live),
            }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tasks", type=int, default=TASKS)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    figures = {"load_before": round(load, 1), "processors": os.cpu_count(), **measured(options.tasks)}
    text = json.dumps(figures, indent=2)
    print(text)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
