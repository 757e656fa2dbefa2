"""Python calls measured, beside others: ``python bench/calls.py --peers PYTHON --json FILE``.

No-op calls per second, the round trip of one call, CPU time per call of every process involved, and large
results: in Hanse (real daemons, two workers of one CPU), in a bare process pool, and in Ray, Dask, Parsl if
``--peers`` names a Python that has them. Each system runs in a process of its own, one after the other, and
that ``--rounds`` times; compare the ratios of one round, not seconds: machines are noisy.
"""

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MARK = "HANSE_BENCH_MARK"
"""A variable that every process of the measured system has in its environment."""
CALLS = 10_000
TRIPS = 1_000
BLOCKS = 1_000
BLOCK_BYTES = 1_000_000
SECONDS_MAX = 600.0
PEERS = ("ray", "dask", "parsl")


class System(NamedTuple):
    """How one system is used."""

    submit: Callable[..., Any]
    """Function and arguments -> a handle."""
    result: Callable[[Any], Any]
    """A handle -> its result."""
    many: Callable[[Callable[..., Any], int], Any]
    """Call a function of one argument so often, by the best way that the system has; wait for all results."""


def nothing(_: object = None) -> None:
    """The call that is measured."""


def block(_: object = None) -> bytes:
    """A large result."""
    return bytes(BLOCK_BYTES)


def each(submit: Callable[..., Any], function: Callable[..., Any], count: int) -> None:
    """So many futures, and all their results."""
    for future in [submit(function) for _ in range(count)]:
        future.result(SECONDS_MAX)


# --- the systems -------------------------------------------------------------------------------------------


@contextmanager
def hanse_system() -> Iterator[System]:
    """A league with two brokers and two clusters on this machine."""
    sys.path.insert(0, str(ROOT))
    from tests.live.sdk_league import sdk_league  # noqa: PLC0415  peers have no hanse

    with sdk_league():
        import hanse  # noqa: PLC0415  as above

        with hanse.Executor({"cpus": 1}, max_workers=2, job={"env": {MARK: os.environ[MARK]}}) as executor:
            executor.submit(nothing).result(60)
            assert executor.wait_for_workers(2, 60)
            yield System(
                executor.submit,
                lambda future: future.result(60),
                lambda function, count: [
                    f.result() for f in [executor.submit(function) for _ in range(count)]
                ],
            )


@contextmanager
def pool_system() -> Iterator[System]:
    """What Python itself has: no league, no isolation, no other machine."""
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415  only here

    with ProcessPoolExecutor(2) as executor:
        list(executor.map(nothing, range(10)))
        yield System(
            executor.submit,
            lambda future: future.result(60),
            partial(each, executor.submit),
        )


@contextmanager
def ray_system() -> Iterator[System]:
    """Ray's tasks."""
    import ray  # noqa: PLC0415  only here

    ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    remote = {function: ray.remote(function) for function in (nothing, block)}
    ray.get([remote[nothing].remote() for _ in range(10)])
    yield System(
        lambda function: remote[function].remote(),
        ray.get,
        lambda function, count: ray.get([remote[function].remote() for _ in range(count)]),
    )
    ray.shutdown()


@contextmanager
def dask_system() -> Iterator[System]:
    """Dask's distributed scheduler of the literature, with two processes."""
    from distributed import Client, LocalCluster  # noqa: PLC0415  only here

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=logging.ERROR
        ) as cluster,
        Client(cluster) as client,
    ):
        client.buffering(client.map(nothing, range(10), pure=False))
        yield System(
            lambda function: client.submit(function, pure=False),
            lambda future: future.result(60),
            lambda function, count: client.buffering(client.map(function, range(count), pure=False)),
        )


@contextmanager
def parsl_system() -> Iterator[System]:
    """Parsl's high-throughput executor."""
    import parsl  # noqa: PLC0415  only here
    from parsl.config import Config  # noqa: PLC0415  only here
    from parsl.executors import HighThroughputExecutor  # noqa: PLC0415  only here
    from parsl.providers import LocalProvider  # noqa: PLC0415  only here

    logging.disable(logging.CRITICAL)
    executor = HighThroughputExecutor(
        label="htex", max_workers_per_node=2, address="127.0.0.1", provider=LocalProvider(max_blocks=1)
    )
    with (
        tempfile.TemporaryDirectory(prefix="hanse-bench-") as directory,
        parsl.load(Config(executors=[executor], usage_tracking=0, run_dir=directory)),
    ):
        apps = {function: parsl.python_app(function) for function in (nothing, block)}
        for future in [apps[nothing]() for _ in range(10)]:
            future.result(60)
        yield System(
            lambda function: apps[function](),
            lambda future: future.result(60),
            lambda function, count: [f.result() for f in [apps[function]() for _ in range(count)]],
        )


SYSTEMS = {
    "hanse": hanse_system,
    "pool": pool_system,
    "ray": ray_system,
    "dask": dask_system,
    "parsl": parsl_system,
}


# --- measuring ---------------------------------------------------------------------------------------------


def cpu_seconds() -> float:
    """CPU time of every process that carries the mark, its own threads and its ended children included.

    Only root can look into workers: measured by anybody else, their time is missing.
    """
    mark = f"{MARK}={os.environ[MARK]}".encode()
    ticks = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark not in (path / "environ").read_bytes().split(b"\0"):
                continue
            words = (path / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:  # it is gone
            continue
        ticks += sum(map(int, words[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(system: System) -> dict[str, float]:
    """One round of one system."""
    begin, used = time.perf_counter(), cpu_seconds()
    system.many(nothing, CALLS)
    spent, cpu = time.perf_counter() - begin, cpu_seconds() - used
    trips = []
    for _ in range(TRIPS):
        begin = time.perf_counter()
        system.result(system.submit(nothing))
        trips.append(time.perf_counter() - begin)
    trips.sort()
    begin, used = time.perf_counter(), cpu_seconds()
    handles = [system.submit(block) for _ in range(BLOCKS)]
    handles.reverse()
    while handles:
        assert len(system.result(handles.pop())) == BLOCK_BYTES
    blocks, blocks_cpu = time.perf_counter() - begin, cpu_seconds() - used
    return {
        "calls_per_s": round(CALLS / spent),
        "cpu_ms_per_call": round(1e3 * cpu / CALLS, 4),
        "trip_p50_ms": round(statistics.median(trips) * 1e3, 3),
        "trip_p99_ms": round(trips[int(TRIPS * 0.99)] * 1e3, 3),
        "megabyte_results_per_s": round(BLOCKS / blocks, 1),
        "cpu_ms_per_megabyte": round(1e3 * blocks_cpu / BLOCKS, 3),
    }


def one(name: str) -> None:
    """Measure one system in this process, and print JSON as the last line."""
    begin = time.perf_counter()
    with ExitStack() as stack:
        system = stack.enter_context(SYSTEMS[name]())
        started = time.perf_counter() - begin
        figures = measured(system)
        figures["start_to_first_result_s"] = round(started, 2)
        print(json.dumps(figures), flush=True)


def run(name: str, python: str) -> dict[str, float] | str:
    """Measure one system in a process of its own; its figures, or why there are none."""
    environment = {
        **os.environ,
        MARK: uuid.uuid4().hex,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "bench"), os.environ.get("PYTHONPATH")))),
        "PATH": os.pathsep.join((str(Path(python).parent), os.environ["PATH"])),
    }
    source = [
        "-c",
        f"import calls; calls.one({name!r})",
    ]  # as a module that others can import
    try:
        done = subprocess.run(  # noqa: S603  our own program
            [python, *source],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {SECONDS_MAX} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return f"status {done.returncode}: {done.stderr.strip()[-500:]}"
    figures: dict[str, float] = json.loads(lines[-1])
    return figures


def ratios(figures: dict[str, Any]) -> dict[str, float]:
    """Ours beside the others of the same round; above 1 is better for us."""
    ours = figures.get("hanse")
    found: dict[str, float] = {}
    if not isinstance(ours, dict):
        return found
    for name, theirs in figures.items():
        if name == "hanse" or not isinstance(theirs, dict):
            continue
        for figure in ("calls_per_s", "megabyte_results_per_s"):
            found[f"{figure}_over_{name}"] = round(ours[figure] / theirs[figure], 2)
        for figure in ("trip_p50_ms", "trip_p99_ms", "cpu_ms_per_call", "cpu_ms_per_megabyte"):
            found[f"{figure}_{name}_over_ours"] = round(theirs[figure] / max(ours[figure], 1e-4), 2)
    return found


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peers", help="a Python that has ray, distributed and parsl")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=SYSTEMS, action="append")
    options = parser.parse_args()
    rounds = []
    for number in range(options.rounds):
        figures: dict[str, Any] = {}
        for name in options.only or SYSTEMS:
            if name in PEERS and not options.peers:
                continue
            figures[name] = run(name, options.peers if name in PEERS else sys.executable)
            print(number, name, json.dumps(figures[name]), flush=True)
        rounds.append({"systems": figures, "ratios": ratios(figures), "load": os.getloadavg()[0]})
    names = rounds[0]["ratios"]
    middle = {
        name: round(statistics.median(one["ratios"].get(name, 0.0) for one in rounds), 2) for name in names
    }
    results = {"calls": CALLS, "cores": os.cpu_count(), "median_ratios": middle, "rounds": rounds}
    print(json.dumps(middle, indent=2))
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
