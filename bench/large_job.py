"""One large job measured: ``python bench/large_job.py --json FILE [--tasks N]``.

A real league on this machine. Somebody submits ``true`` and waits for it, again and again (the door's own
requests over one connection, as ``hanse submit --wait -- true`` makes them), first with nothing else going
on, then while somebody else's job of a million tasks is submitted, listed, cancelled, run on a null backend,
copied to a new heir (the old one is killed) and adopted (its owner is killed). A phase lasts until it has
``ANSWERS`` answers, or ``PHASE_SECONDS_MAX``. Told are, for each phase, the 50th and 99th percentile of what
the former waits, how often the loop of each broker was kept for longer than 50 ms and how long at most since
the start, and at the end the most processor time of one event. The first phase is what the same machine does
at the same load without the large job: compare with that, machines are noisy.

A copy of which no two neighbours ended alike is measured in the machine (``tests/core/test_bounded_work.py``
counts its work): a null backend ends tasks in order.
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

from hanse.security.identity import Role

LEAGUE = """
brokers: [{name: b1}, {name: b2}, {name: b3}]
clusters:
  - {name: north, nodes: [{count: 2, cpus: 1, memory: 512MiB}]}
  - {name: south, backend: "null", nodes: [{count: 4, cpus: 8, memory: 8GiB}]}
timings: {runner_lease: 4s, cluster_lease: 6s, suspect_after: 3s, lease_grace: 500ms}
"""
TASKS = 1 << 20
ANSWERS = 100
PHASE_SECONDS_MAX = 40.0
SUBMISSIONS = 2
PAUSE = 0.05
PAGE = 1_000
BROKERS = ("b1", "b2", "b3")
MEMBERS = (*BROKERS, "north", "south")


class Other(threading.Thread):
    """Somebody with small jobs, who waits for each."""

    def __init__(self, live: LiveLeague, broker: str) -> None:
        super().__init__(daemon=True)
        self._door = Door(live, Role.BROKER, broker)  # a connection of its own
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


def metric(live: LiveLeague, name: str, what: str) -> float:
    """One number that a member shows."""
    door = live.broker(name) if name in BROKERS else live.cluster(name)
    lines = door.raw("GET", "/metrics")[1].decode().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith(f"{what} ")]
    return float(value)


def lags(live: LiveLeague) -> dict[str, dict[str, float]]:
    """For how long, and how often for more than 50 ms, the loops of the living were kept."""
    return {
        name: {
            "longest_ms": round(1e3 * metric(live, name, "hanse_loop_lag_longest_seconds"), 1),
            "over_50_ms": metric(live, name, "hanse_loop_lags_total"),
        }
        for name in MEMBERS
        if name in live.processes
    }


def timed(work: Callable[[], Any]) -> float:
    """How long something takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def listed(live: LiveLeague, job: str) -> None:
    """The job, why it waits, and a page of its tasks."""
    live.broker().ask("GET", f"/v1/jobs/{job}")
    live.broker().ask("GET", f"/v1/jobs/{job}/why")
    live.broker().ask("GET", f"/v1/jobs/{job}/tasks?limit={PAGE}&after={TASKS // 2}")


class Phases:
    """The phases of one run, and what was seen in each."""

    def __init__(self, live: LiveLeague, tasks: int) -> None:
        self.live = live
        self.tasks = tasks
        self.seen: dict[str, Any] = {}

    def phase(self, name: str, other: Other, work: Callable[[], object] = lambda: None) -> None:
        """Do something, again and again if it is over soon, until somebody else was answered often."""
        other.phase = name
        begin, rounds, first = time.perf_counter(), 0, 0.0
        while True:
            first = max(first, timed(work))
            rounds += 1
            taken = time.perf_counter() - begin
            if len(other.seconds.get(name, ())) >= ANSWERS or taken > PHASE_SECONDS_MAX:
                break
            time.sleep(0.2)
        other.phase = "between"
        waited = quantiles(other.seconds.get(name) or [0.0])
        self.seen[name] = {**waited, "rounds": rounds, "slowest_s": round(first, 3), "loops": lags(self.live)}
        print(name, json.dumps(self.seen[name]), file=sys.stderr, flush=True)

    def run(self) -> None:
        """All of them."""
        live = self.live
        other = Other(live, "b1")
        other.start()
        self.phase("calm", other)
        spec = {"command": ["true"], "count": self.tasks, "clusters": {"allow": ["south"]}}
        jobs: list[str] = []
        self.phase("run", other, lambda: jobs or jobs.append(live.submit(spec)))
        large = jobs[0]
        self.phase("list", other, lambda: listed(live, large))
        more: list[str] = []

        def submit() -> None:
            if len(more) < SUBMISSIONS:
                more.append(live.submit(spec))

        self.phase("submit", other, submit)

        def cancel() -> None:
            if more:
                live.broker().ask("POST", f"/v1/jobs/{more.pop()}/cancel")

        self.phase("cancel", other, cancel)
        live.kill("b2")
        self.phase("replicate", other)
        other.over = True
        other.join(60)
        later = Other(live, "b3")
        later.start()
        live.kill("b1")
        self.phase("adopt", later)
        later.over = True
        later.join(60)
        self.seen["adopter"] = live.broker("b3").raw("GET", f"/v1/jobs/{large}?local=1")[0]


def measured(tasks: int) -> dict[str, Any]:
    """All phases in one league."""
    with tempfile.TemporaryDirectory(prefix="hanse-bench-") as name:
        Path(name).chmod(0o755)
        with running(Path(name) / "home", LEAGUE) as live:
            phases = Phases(live, tasks)
            phases.run()
            events = {
                name: round(1e3 * metric(live, name, "hanse_event_longest_seconds"), 1)
                for name in MEMBERS
                if name in live.processes
            }
            return {"tasks": tasks, "phases": phases.seen, "longest_event_ms": events}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tasks", type=int, default=TASKS)
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 1)
    seen = measured(options.tasks)
    loads = {"load_before": load, "load_after": round(os.getloadavg()[0], 1)}
    figures = {**loads, "processors": os.cpu_count(), **seen}
    text = json.dumps(figures, indent=2)
    print(text)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
