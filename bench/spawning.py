"""``/bin/true`` as a real process, so many times: ours beside the peers, in turns on the same machine.

Used by ``bench/live.py``. One turn is the plain loop, Hanse, Ray, HyperQueue and Slurm one after the other,
each started for it and gone after it; the figures are medians of ``TURNS`` turns. Around each run stand the
load and the share of two cores that two busy loops got: compare ratios, and only those of turns whose shares
are alike. A peer that is not there is skipped, with the reason in its place.

``loop``: ``posix_spawn`` and wait, one after the other: no limits, no durability, no queue; the floor.
``hanse``: two brokers, one cluster of 32 slots: journals on disk, TLS, a supervisor and limits for each task.
``ray``, ``hyperqueue``: two slots, as they are commonly measured; both keep nothing on disk.
``slurm``: a controller and three node daemons with 48 slots that this machine does not have; fewer jobs,
because it takes 16 ms for one.
"""

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tests.live.harness import LiveLeague  # noqa: E402  behind the path

TASKS = 2_000
SLURM_TASKS = 400
TURNS = 3
PROBE_SECONDS = 0.3
PROBE_TURNS = 1_000
"""Between two looks at the clock."""
PEER_SECONDS_MAX = 300
TICKS = os.sysconf("SC_CLK_TCK")
Run = dict[str, Any]


def _burn(seconds: float) -> tuple[float, float]:
    """The share of a core that a busy loop got, and its turns in a CPU-second."""
    end = time.perf_counter() + seconds
    cpu = time.process_time()
    turns = 0
    while time.perf_counter() < end:
        for _ in range(PROBE_TURNS):
            turns += 1
    used = time.process_time() - cpu
    return used / seconds, turns / used


def calm() -> Run:
    """The load, which share of a core each of two busy loops got just now (1.0: nobody else is here), and
    their pace in millions of turns a CPU-second: the same processor may be half as fast a minute later."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        shares, paces = zip(*pool.map(_burn, [PROBE_SECONDS] * 2), strict=True)
    return {
        "load": round(os.getloadavg()[0], 1),
        "cpu_share": round(sum(shares) / 2, 2),
        "pace": round(sum(paces) / 2e6, 1),
    }


def run_loop() -> Run:
    """The plain loop."""
    before, begin = os.times(), time.perf_counter()
    for _ in range(TASKS):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    seconds, after = time.perf_counter() - begin, os.times()
    return _told(TASKS, seconds, sum(after[:4]) - sum(before[:4]))


def run_hanse(live: LiveLeague) -> Run:
    """A league that is up and has run something before."""
    live.wait(live.submit({"count": 50, "command": ["/bin/true"]}))
    before, begin = _league_cpu(live), time.perf_counter()
    job = live.submit({"count": TASKS, "cpus": 1, "memory": "16MiB", "command": ["/bin/true"]})
    row = live.wait(job)
    seconds = time.perf_counter() - begin
    assert row["succeeded"] == TASKS, row
    return _told(TASKS, seconds, _league_cpu(live) - before)


def run_python_peer(python: Path | None, script: str, package: str) -> Run:
    """A peer whose measurement is a program of its own, run by the interpreter that has it."""
    if python is None:
        return {"skipped": "no environment with the peers was named (--peers PYTHON)"}
    probe = subprocess.run(  # noqa: S603  the user's own interpreter
        [python, "-c", f"import {package}"], capture_output=True, check=False
    )
    if probe.returncode:
        return {"skipped": f"{package} is not installed there"}
    try:
        done = subprocess.run(  # noqa: S603  as above
            [python, HERE / script, str(TASKS)],
            capture_output=True, text=True, check=False, timeout=PEER_SECONDS_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"skipped": f"it took more than {PEER_SECONDS_MAX} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"skipped": f"it ended with status {done.returncode}: {done.stderr[-300:]}"}
    told = json.loads(lines[-1])
    run = _told(TASKS, told["seconds"], told["cpu_seconds"])
    return {**run, "first_result_s": round(told["first_result"], 2), "version": told["version"]}


def run_slurm() -> Run:
    """One array, from its submission until nothing of it is left."""
    try:
        from tests.live.backends.slurm import fixture  # noqa: PLC0415  may not be there
    except ImportError as error:
        return {"skipped": str(error)}
    if why := fixture.missing():
        return {"skipped": why}
    with fixture.slurm_clusters("bench") as (cluster,):
        begin = time.perf_counter()
        array = f"--array=0-{SLURM_TASKS - 1}"
        subprocess.run(  # noqa: S603  Slurm's own program
            ["sbatch", "--wait", "-o", "/dev/null", array, "--mem", "16", "--wrap", "/bin/true"],  # noqa: S607  wherever Debian has it
            env={"PATH": os.environ["PATH"] + ":/usr/bin", "SLURM_CONF": str(cluster.conf)},
            stdout=subprocess.DEVNULL, check=True, cwd="/", timeout=PEER_SECONDS_MAX,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
    return _told(SLURM_TASKS, seconds, None)


def contest(league: Callable[[Callable[[LiveLeague], Run]], Run], peers: Path | None) -> Run:
    """All of them in turns; what each did, the medians, and the ratios of the medians."""
    runs: dict[str, Callable[[], Run]] = {
        "loop": run_loop,
        "hanse": lambda: league(run_hanse),
        "ray": lambda: run_python_peer(peers, "spawning_ray.py", "ray"),
        "hyperqueue": lambda: run_python_peer(peers, "spawning_hyperqueue.py", "hyperqueue"),
        "slurm": run_slurm,
    }
    turns: dict[str, list[Run]] = {name: [] for name in runs}
    for _ in range(TURNS):
        for name, run in runs.items():
            before = calm()
            done = run()
            turns[name].append({**done, "before": before, "after": calm()})
            print(f"  {name} {json.dumps(turns[name][-1])}", flush=True)
    return {"tasks": TASKS, "turns": turns, **_summary(turns)}


def _summary(turns: dict[str, list[Run]]) -> Run:
    rates: dict[str, float] = {}
    costs: dict[str, float] = {}
    skipped: dict[str, str] = {}
    for name, done in turns.items():
        there = [run for run in done if "per_s" in run]
        if there:
            rates[name] = statistics.median(run["per_s"] for run in there)
        else:
            skipped[name] = done[-1]["skipped"]
        if there and there[0]["cpu_ms_per_task"] is not None:
            costs[name] = statistics.median(run["cpu_ms_per_task"] for run in there)
    ours = rates["hanse"]
    return {
        "per_s": {name: round(rate) for name, rate in rates.items()},
        "cpu_ms_per_task": costs,
        "hanse_over": {name: round(ours / rate, 2) for name, rate in rates.items() if name != "hanse"},
        "loop_over_hanse": round(rates["loop"] / ours, 2),
        "skipped": skipped,
    }


def _told(count: int, seconds: float, cpu: float | None) -> Run:
    each = None if cpu is None else round(1e3 * cpu / count, 3)
    return {"per_s": round(count / seconds, 1), "cpu_ms_per_task": each}


def _league_cpu(live: LiveLeague) -> float:
    """Seconds of CPU time of all members, supervisors and tasks; this process is only the client."""
    total = 0.0
    for process in live.processes.values():
        total += _cpu(Path(f"/proc/{process.pid}"), 2)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            ours = (entry / "cwd").readlink().is_relative_to(live.home.path)
            if ours and (entry / "exe").readlink().name == "_supervisor":
                total += _cpu(entry, 4)
        except OSError:
            continue
    return total


def _cpu(entry: Path, fields: int) -> float:
    """Its own CPU time (2), and that of all it has waited for (4)."""
    words = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return sum(map(int, words[11 : 11 + fields])) / TICKS
