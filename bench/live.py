"""The live league measured: ``python bench/live.py --json FILE``.

Real daemons on this machine, over TLS, with journals on disk. Beside each figure of ours stands, in the same
run, a plain loop that only forks and waits. Compare ratios, not seconds: machines are noisy.
"""

import argparse
import json
import os
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

from tests.live.harness import LiveLeague, running

TRUE_TASKS = 2_000
NULL_TASKS = 20_000
BATCH_JOBS = 5_000
CALLS = 300
IDLE_SECONDS = 20.0

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


def rate(count: int, work: Callable[[], object]) -> float:
    """How many a second."""
    begin = time.perf_counter()
    work()
    return count / (time.perf_counter() - begin)


def forking() -> dict[str, float]:
    """2,000 ``/bin/true``: a plain loop, then a league with limits, supervisors and durability."""
    one_by_one = rate(
        TRUE_TASKS,
        lambda: [os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0) for _ in range(TRUE_TASKS)],
    )

    with league(PROCESS) as live:
        live.wait(live.submit({"command": ["/bin/true"]}))

        def ours() -> None:
            job = live.submit({"count": TRUE_TASKS, "cpus": 1, "memory": "16MiB", "command": ["/bin/true"]})
            assert live.wait(job)["succeeded"] == TRUE_TASKS

        hanse = rate(TRUE_TASKS, ours)
    return {
        "plain_loop_per_s": round(one_by_one),
        "hanse_per_s": round(hanse),
        "loop_over_hanse": round(one_by_one / hanse, 2),
    }


def placing() -> dict[str, float]:
    """The null backend: what the league itself costs."""
    with league(null_league(1)) as live:
        live.wait(live.submit({"command": "true"}))

        def array() -> None:
            job = live.submit({"count": NULL_TASKS, "command": "true"})
            assert live.wait(job)["succeeded"] == NULL_TASKS

        placements = rate(NULL_TASKS, array)
        batch = {"jobs": [{"command": "true"}] * BATCH_JOBS}
        results: list[dict[str, str]] = []
        submits = rate(
            BATCH_JOBS, lambda: results.extend(live.broker().ask("POST", "/v1/jobs", batch)["results"])
        )
        for result in results:
            live.wait(result["job"])
        calls, starts = [], []
        for _ in range(CALLS):
            begin = time.perf_counter()
            job = live.submit({"command": "true"})
            calls.append(time.perf_counter() - begin)
            live.wait(job)
            row = live.broker().ask("GET", f"/v1/jobs/{job}")["row"]
            starts.append((row["started"] - row["submitted"]) / 1e6)
    calls.sort()
    return {
        "placements_per_s": round(placements),
        "batch_submit_jobs_per_s": round(submits),
        "submit_p50_ms": round(statistics.median(calls) * 1e3, 2),
        "submit_p99_ms": round(calls[int(len(calls) * 0.99)] * 1e3, 2),
        "submit_to_start_p50_ms": round(statistics.median(starts) * 1e3, 2),
    }


def federating() -> dict[str, Any]:
    """One cluster of 64 slots against two of 32: what does it cost to act as one, and how is work split?"""
    rates = {}
    split: dict[str, int] = {}
    for clusters, slots in ((1, 64), (2, 32)):
        with league(null_league(clusters, slots=slots)) as live:
            live.wait(live.submit({"command": "true"}))

            def work(live: LiveLeague = live) -> str:
                job = live.submit({"count": NULL_TASKS, "command": "true"})
                assert live.wait(job)["succeeded"] == NULL_TASKS
                return job

            begin = time.perf_counter()
            job = work()
            rates[clusters] = NULL_TASKS / (time.perf_counter() - begin)
            if clusters == 2:
                cursor = ""
                while cursor is not None:
                    path = f"/v1/jobs/{job}/tasks?limit=1000{cursor}"
                    page = live.broker().ask("GET", path)
                    for task in page["tasks"]:
                        split[task["cluster"]] = split.get(task["cluster"], 0) + 1
                    cursor = f"&after={page['next']}" if page["next"] else None
    return {"one_cluster_per_s": round(rates[1]), "two_clusters_per_s": round(rates[2]),
            "ratio": round(rates[2] / rates[1], 3), "split": split}  # fmt: skip


def idle() -> dict[str, float]:
    """Two brokers and three wardens with nothing to do."""
    with league(EMBEDDED) as live:
        live.wait(live.submit({"command": "true"}))
        pids = [process.pid for process in live.processes.values()]
        before = sum(_cpu_seconds(pid) for pid in pids)
        time.sleep(IDLE_SECONDS)
        used = sum(_cpu_seconds(pid) for pid in pids) - before
        largest = max(_resident(pid) for pid in pids)
    return {
        "percent_of_a_core_all": round(100 * used / IDLE_SECONDS, 2),
        "largest_rss_mb": round(largest / 1e6, 1),
    }


def first_result() -> dict[str, float]:
    """From nothing to the first result, with the commands that a user types."""
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

        begin = time.perf_counter()
        hanse("up")
        hanse("submit", "--wait", "-q", "--", "true")
        seconds = time.perf_counter() - begin
        hanse("down", "--delete")
    return {"seconds": round(seconds, 2)}


def _cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "processes": forking,
    "placing": placing,
    "federating": federating,
    "idle": idle,
    "first_result": first_result,
}


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=PARTS, action="append")
    options = parser.parse_args()
    results = {}
    for name in options.only or PARTS:
        results[name] = PARTS[name]()
        print(name, json.dumps(results[name]), flush=True)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
