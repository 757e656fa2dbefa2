"""How many tasks a second of CPU time replays: our policies and peer simulators on one trace in one run.

``python bench/replay.py --json FILE [--peers DIR]`` writes what it prints. ``DIR`` is an environment that has
the peers (``pip install accasim==1.1.3 simpy==4.1.2``); without it they are left out, and the figures say so.
The traces are the public ones (``../shared/traces`` or ``HANSE_TRACES``); without them a generated one stands
in.

``beside``: ``hanse``, ``central`` and ``sparrow`` beside the peers on the Yahoo sub-trace at 5,000 nodes, in
whole seconds for all, because the peers know no others. ``agreement``: the mean wait of a task under our
``central``, first come first served and without a network, and under the peers: the same queue must give the
same figure. Our time is without reading the trace (``reading_cpu_seconds``); AccaSim's is with it.
``hanse`` is played by its compiled twin where there is one, ``hanse-machines`` by the machines themselves:
the same results, at another speed. ``goal``: the Google sub-trace at 10,000 nodes, 4 brokers, 10 clusters.
``sizes``: microseconds of CPU time a task at equal load on 1,000, 10,000 and 50,000 nodes, and the ratio of
the last to the first.
"""

import json
import os
import platform
import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from figures import options_of, tell

from hanse.sim.replay.execution import run_once
from hanse.sim.replay.metrics import RunResult
from hanse.sim.replay.registry import policies
from hanse.sim.replay.run_records import SECOND, ReplaySettings, ReplayWorkload
from hanse.sim.replay.trace_workload import read_workload, scale_to_load, workload_from_chunk
from hanse.sim.replay.validate import traces_folder
from hanse.sim.traces.chunk import concatenate
from hanse.sim.traces.generate import GeneratorSettings, generate

MACHINES: Final = "hanse-machines"
NAMES: Final = ("hanse", MACHINES, "central", "sparrow")
BARS: Final = {"hanse": 50_000, "central": 300_000}
"""Tasks per CPU-second that ``goal`` must reach."""
GROWTH_BAR: Final = 1.3
"""How much more a task may cost on the largest league than on the smallest."""
MEMORY_BAR: Final = 1_500_000_000
SIZES: Final = (1_000, 10_000, 50_000)
LOAD: Final = 0.65
PEERS: Final = ("accasim", "simpy")
PEER_SECONDS_MAX: Final = 900
"""A peer that takes longer is left out."""
PEERS_VARIABLE: Final = "HANSE_PEERS"


def run(peers: Path | None = None, jobs: int | None = None) -> dict[str, Any]:
    """All figures; ``peers`` is the environment of the peers, ``jobs`` how many jobs of each trace to use."""
    named = os.environ.get(PEERS_VARIABLE)
    peers = peers or (Path(named) if named else None)
    yahoo, reading = _read("YH1_sub.tr.gz", 5_000, jobs)
    whole = _whole_seconds(yahoo)
    crowd = ReplaySettings(nodes=5_000, brokers=5, clusters=10)
    others = {name: _peer(peers, name, whole, crowd.nodes) for name in PEERS}
    beside = {name: _ours(name, whole, crowd) for name in NAMES}
    google, _ = _read("GOOG_subtrace.tr.gz", 10_000, jobs, whole_seconds=True)
    league = ReplaySettings(nodes=10_000, brokers=4, clusters=10, short_cutoff_us=1_129_532_000)
    return {
        "machine": {"python": platform.python_version(), "cpu": platform.machine()},
        "beside": {
            "trace": whole.name, "tasks": whole.task_count, "nodes": crowd.nodes,
            "load": whole.load(crowd.nodes), "reading_cpu_seconds": reading, **beside, **others,
            "agreement": _agreement(whole, crowd, others),
        },
        "goal": {
            "trace": google.name, "tasks": google.task_count, "nodes": league.nodes, "bars": BARS,
            **{name: _ours(name, google, league) for name in NAMES},
            "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "memory_bar": MEMORY_BAR,
        },
        "sizes": {"trace": yahoo.name, "load": LOAD, "bar": GROWTH_BAR,
                  **{name: _sizes(name, yahoo) for name in NAMES}},
    }  # fmt: skip


def _read(
    name: str, nodes: int, jobs: int | None, whole_seconds: bool = False
) -> tuple[ReplayWorkload, float]:
    """A public trace, or a made one of its kind; and the CPU time that reading it took."""
    folder = traces_folder()
    begin = time.process_time()
    if folder is not None:
        path = folder / "tr" / name
        found = read_workload(path, whole_seconds=whole_seconds, limit=jobs)[0]
    else:
        family = "google-like" if name.startswith("GOOG") else "yahoo-like"
        wish = GeneratorSettings(family=family, jobs=jobs or 3_000, load=LOAD, nodes=nodes)
        found = workload_from_chunk(concatenate(list(generate(wish))), f"generated, {family}")
        found = _whole_seconds(found) if whole_seconds else found
    return found, time.process_time() - begin


def _whole_seconds(workload: ReplayWorkload) -> ReplayWorkload:
    """Arrivals and durations in whole seconds, none shorter than one: what the peers can be told."""
    arrival = [time // SECOND * SECOND for time in workload.arrival]
    duration = [max(1, time // SECOND) * SECOND for time in workload.duration]
    return msgspec.structs.replace(workload, arrival=arrival, duration=duration)


def _run(name: str, workload: ReplayWorkload, settings: ReplaySettings) -> RunResult:
    if name == MACHINES:
        name, settings = "hanse", msgspec.structs.replace(settings, engine="machines")
    return run_once(policies()[name], workload, settings).result


def _ours(name: str, workload: ReplayWorkload, settings: ReplaySettings) -> dict[str, Any]:
    result = _run(name, workload, settings)
    figures = {} if not result.engine else {"engine": result.engine}
    return {
        **figures,
        "tasks_per_cpu_second": round(result.tasks_per_cpu_second),
        "cpu_seconds": round(result.cpu_seconds, 3),
        "delay_mean": round(result.delay_mean or 0.0, 4),
        "messages_per_task": round(result.messages_per_task, 3),
    }


def _peer(peers: Path | None, name: str, workload: ReplayWorkload, nodes: int) -> dict[str, Any]:
    """A peer's figures, or why there are none."""
    if peers is None:
        return {"left_out": f"no environment with the peers: --peers DIR or {PEERS_VARIABLE}"}
    with tempfile.NamedTemporaryFile("w", suffix=".swf", encoding="ascii") as file:
        number = 0
        for job, arrival in enumerate(workload.arrival):
            for task in range(workload.offset[job], workload.offset[job + 1]):
                number += 1
                at, ran = arrival // SECOND, workload.duration[task] // SECOND
                file.write(f"{number} {at} -1 {ran} 1 -1 -1 1 {ran} -1 1 1 1 1 1 1 -1 -1\n")
        file.flush()
        script = Path(__file__).with_name("peers.py")
        command = [peers / "bin" / "python", script, name, file.name, str(nodes)]
        try:
            done = subprocess.run(  # noqa: S603  the user named the environment
                command, capture_output=True, text=True, timeout=PEER_SECONDS_MAX, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"left_out": str(error)}
    if done.returncode:
        return {"left_out": done.stderr.strip().splitlines()[-1]}
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert found["tasks"] == workload.task_count, (
        f"{name} ran {found['tasks']} of {workload.task_count} tasks"
    )
    return {
        "tasks_per_cpu_second": round(found["tasks"] / found["cpu_seconds"]),
        "cpu_seconds": round(found["cpu_seconds"], 3),
        "mean_wait": found["mean_wait"],
    }


def _agreement(
    workload: ReplayWorkload, settings: ReplaySettings, others: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The mean wait of a task in one queue without a network, by us and by the peers."""
    plain = msgspec.structs.replace(settings, order="fifo", delay_us=0)
    outcome = policies()["central"](workload, plain)
    counts = np.diff(np.asarray(workload.offset))
    waits = outcome.start - np.repeat(np.asarray(workload.arrival), counts)
    peers = {name: found["mean_wait"] for name, found in others.items() if "mean_wait" in found}
    return {"central": round(float(waits.mean()) / SECOND, 4), **peers}


def _sizes(name: str, workload: ReplayWorkload) -> dict[str, float]:
    """Microseconds of CPU time a task, by number of nodes, at one load."""
    costs = {}
    for nodes in SIZES:
        settings = ReplaySettings(nodes=nodes, brokers=4, clusters=10)
        result = _run(name, scale_to_load(workload, nodes, LOAD), settings)
        costs[str(nodes)] = round(1_000_000 * result.cpu_seconds / result.tasks, 2)
    return {**costs, "growth": round(costs[str(SIZES[-1])] / costs[str(SIZES[0])], 3)}


def main() -> None:
    """Measure, print, and write to ``--json``."""
    parser = options_of("Tasks that a replay takes per CPU-second, beside peers.")
    parser.add_argument("--peers", type=Path, help="an environment that has accasim and simpy")
    parser.add_argument("--jobs", type=int, help="only the first jobs of each trace")
    options = parser.parse_args()
    tell(run(options.peers, options.jobs), options.json)


if __name__ == "__main__":
    main()
