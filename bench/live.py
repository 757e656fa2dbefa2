"""The live league measured: ``python bench/live.py --json FILE [--peers PYTHON]``.

Real daemons on this machine, over TLS, with journals on disk. Beside the figure for real processes stand, in
the same run and in turns, a plain loop that only forks and waits, and the peers (``spawning``): Ray and
HyperQueue from the environment of the interpreter that ``--peers`` names, Slurm from this machine's packages.
Compare ratios, not seconds: machines are noisy.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from spawning import Run, calm, contest
from tests.live.harness import LiveLeague, running

NULL_TASKS = 20_000
BATCH_JOBS = 5_000
CALLS = 300
PLACING_ROUNDS = 3
FEDERATING_ROUNDS = 11
IDLE_SECONDS = 60.0
SETTLE_SECONDS = 12.0
"""Until supervisors that wait for more work have gone, and what the start left to do is done."""
FIRST_RESULTS = 3

PROCESS = """
brokers: [{name: b1}, {name: b2}]
clusters: [{name: north, nodes: [{count: 1, cpus: 32, memory: 4GiB}]}]
"""
EMBEDDED = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, nodes: [{count: 2, cpus: 1, memory: 512MiB}]}
  - {name: south, nodes: [{count: 2, cpus: 1, memory: 512MiB}]}
  - {name: east, nodes: [{count: 2, cpus: 1, memory: 512MiB}]}
"""


def null_league(clusters: int, brokers: int = 2, slots: int = 64) -> str:
    """Clusters whose tasks do nothing."""
    names = ("north", "south")[:clusters]
    lines = "".join(f'  - {{name: {name}, backend: "null", nodes: [{{cpus: {slots}}}]}}\n' for name in names)
    members = ", ".join(f"{{name: b{number + 1}}}" for number in range(brokers))
    return f"brokers: [{members}]\nclusters:\n{lines}"


@contextmanager
def league(description: str) -> Iterator[LiveLeague]:
    """A league in a directory that tasks may enter."""
    with tempfile.TemporaryDirectory(prefix="hanse-bench-") as name:
        Path(name).chmod(0o755)
        with running(Path(name) / "home", description) as live:
            yield live


def in_league(work: Callable[[LiveLeague], Run]) -> Run:
    """Do something with a league for real processes."""
    with league(PROCESS) as live:
        return work(live)


def forking(peers: Path | None) -> dict[str, Any]:
    """2,000 ``/bin/true``, beside the plain loop and the peers."""
    return contest(in_league, peers)


def placing() -> dict[str, Any]:
    """The null backend: what the league itself costs. ``cpu_ms_per_job`` is that of a job of one task that is
    submitted, waited for and looked at: less noisy than latencies."""
    with league(null_league(1)) as live:
        live.wait(live.submit({"command": "true"}))

        placements = statistics.median(_array_rate(live)[0] for _ in range(PLACING_ROUNDS))
        submits = [_batch_rate(live) for _ in range(PLACING_ROUNDS)]
        before = {name: _cpu_seconds(process.pid) for name, process in live.processes.items()}
        calls, starts = _one_by_one(live, {"command": "true"})
        used = {name: _cpu_seconds(process.pid) - before[name] for name, process in live.processes.items()}
    return {
        "placements_per_s": round(placements),
        "batch_submit_jobs_per_s": round(statistics.median(submits)),
        "batches": [round(each) for each in submits],
        "submit_p50_ms": round(statistics.median(calls) * 1e3, 2),
        "submit_p99_ms": round(calls[int(len(calls) * 0.99)] * 1e3, 2),
        "submit_to_start_p50_ms": round(statistics.median(starts) * 1e3, 2),
        "cpu_ms_per_job": {name: round(seconds / CALLS * 1e3, 2) for name, seconds in used.items()},
    }


def _one_by_one(live: LiveLeague, spec: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Seconds that each of many submissions took, sorted, and seconds from each to its start."""
    calls, starts = [], []
    for _ in range(CALLS):
        begin = time.perf_counter()
        job = live.submit(spec)
        calls.append(time.perf_counter() - begin)
        live.wait(job)
        row = live.broker().ask("GET", f"/v1/jobs/{job}")["row"]
        starts.append((row["started"] - row["submitted"]) / 1e6)
    return sorted(calls), starts


def _batch_rate(live: LiveLeague) -> float:
    """Jobs a second in one request, each acknowledged; then all of them end."""
    batch = {"jobs": [{"command": "true"}] * BATCH_JOBS}
    begin = time.perf_counter()
    results = live.broker().ask("POST", "/v1/jobs", batch)["results"]
    seconds = time.perf_counter() - begin
    for result in results:
        live.wait(result["job"])
    return BATCH_JOBS / seconds


def federating() -> dict[str, Any]:
    """One cluster of 64 slots against two of 32: what does it cost to act as one, and how is work split?

    Both leagues are up all the time and work in turns, several times: the machine changes its pace from
    minute to minute, so only neighbours are compared, and the middle one of the ratios counts. To a broker
    no cluster is nearer than another: ``elsewhere`` is a job that only the second one may run.
    """
    with league(null_league(1, slots=64)) as one, league(null_league(2, slots=32)) as two:
        for live in (one, two):
            live.wait(live.submit({"command": "true"}))
        pairs = [(_array_rate(one)[0], *_array_rate(two)) for _ in range(FEDERATING_ROUNDS)]
        split = _split(two, pairs[-1][2])
        _, elsewhere = _one_by_one(two, {"command": "true", "clusters": {"allow": ["south"]}})
    ratios = sorted(second / first for first, second, _ in pairs)
    return {
        "one_cluster_per_s": round(statistics.median(first for first, _, _ in pairs)),
        "two_clusters_per_s": round(statistics.median(second for _, second, _ in pairs)),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "split": split,
        "submit_to_start_elsewhere_p50_ms": round(statistics.median(elsewhere) * 1e3, 2),
    }


def _array_rate(live: LiveLeague) -> tuple[float, str]:
    """Tasks a second of one large job, and the job."""
    begin = time.perf_counter()
    job = live.submit({"count": NULL_TASKS, "command": "true"})
    assert live.wait(job)["succeeded"] == NULL_TASKS
    return NULL_TASKS / (time.perf_counter() - begin), job


def _split(live: LiveLeague, job: str) -> dict[str, int]:
    """How many tasks of a job ran in each cluster."""
    split: dict[str, int] = {}
    cursor: str | None = ""
    while cursor is not None:
        page = live.broker().ask("GET", f"/v1/jobs/{job}/tasks?limit=1000{cursor}")
        for task in page["tasks"]:
            split[task["cluster"]] = split.get(task["cluster"], 0) + 1
        cursor = f"&after={page['next']}" if page["next"] else None
    return split


@contextmanager
def by_command() -> Iterator[tuple[Path, Callable[..., None]]]:
    """A place for a league, and the command line for it; the league is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="hanse-bench-") as name:
        Path(name).chmod(0o755)
        environment = {**os.environ, "HANSE_CONFIG": f"{name}/config.json", "HANSE_HOME": f"{name}/home"}

        def hanse(*words: str) -> None:
            subprocess.run(  # noqa: S603  our own program
                [sys.executable, "-m", "hanse", *words],
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )

        try:
            yield Path(name) / "home", hanse
        finally:
            hanse("down", "--delete")


def idle() -> dict[str, Any]:
    """The two brokers and three wardens that ``hanse up`` starts, with nothing to do after a first job."""
    with by_command() as (home, hanse):
        hanse("up")
        hanse("submit", "--wait", "-q", "--", "true")
        pids: dict[str, int] = json.loads((home / "pids.json").read_bytes())
        time.sleep(SETTLE_SECONDS)
        before = {name: _cpu_seconds(pid) for name, pid in pids.items()}
        time.sleep(IDLE_SECONDS)
        used = {name: _cpu_seconds(pid) - before[name] for name, pid in pids.items()}
        sizes = {name: round(_resident(pid) / 1e6, 1) for name, pid in pids.items()}
    return {
        "seconds": IDLE_SECONDS,
        "percent_of_a_core_all": round(100 * sum(used.values()) / IDLE_SECONDS, 2),
        "percent_of_a_core": {name: round(100 * each / IDLE_SECONDS, 2) for name, each in used.items()},
        "rss_mb": sizes,
        "largest_rss_mb": max(sizes.values()),
    }


def first_result() -> dict[str, Any]:
    """From nothing to the first result, with the commands that a user types; the median of a few."""
    runs = []
    for _ in range(FIRST_RESULTS):
        with by_command() as (_, hanse):
            before = calm()
            begin = time.perf_counter()
            hanse("up")
            up = time.perf_counter() - begin
            hanse("submit", "--wait", "-q", "--", "true")
            runs.append({"seconds": round(time.perf_counter() - begin, 2), "up": round(up, 2), **before})
    return {"seconds": statistics.median(run["seconds"] for run in runs), "runs": runs}


def _cpu_seconds(pid: int) -> float:
    """What its threads have used, exactly: the ticks of ``stat`` are too coarse for an idle process."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text(encoding="ascii").split()[0]) for each in threads) / 1e9


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "placing": placing,
    "federating": federating,
    "idle": idle,
    "first_result": first_result,
}


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peers", type=Path, help="a Python that has Ray and HyperQueue")
    parser.add_argument("--only", choices=("processes", *PARTS), action="append")
    options = parser.parse_args()
    machine = {"python": platform.python_version(), "compiler": platform.python_compiler()}
    results: dict[str, Any] = {"machine": {**machine, "executable": os.path.realpath(sys.executable)}}
    parts = {"processes": lambda: forking(options.peers), **PARTS}
    for name in options.only or parts:
        before = calm()
        results[name] = {**parts[name](), "calm": {"before": before, "after": calm()}}
        shown = {key: value for key, value in results[name].items() if key != "turns"}
        print(name, json.dumps(shown), flush=True)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
