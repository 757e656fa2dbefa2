"""One peer simulator on one trace: ``python bench/peers.py PEER TRACE.swf NODES`` prints its figures as JSON.

Run by ``bench/replay.py`` with the Python of the environment that has the peers; it must not need anything of
ours. The trace is in the Standard Workload Format, one line a task, one processor each, whole seconds. Both
peers run one first-come-first-served queue before all nodes, without a network.

``accasim``: AccaSim, its own reader, its FIFO dispatcher and first fit. The nodes are one machine with as
many cores, which is several times faster there than as many machines. Its reader works while it simulates, so
that its time includes reading.

``simpy``: the shortest model of such a queue on the SimPy engine: a resource and a process per task, tasks in
memory beforehand. It is no scheduler of SimPy's, but shows what an event costs there.
"""

import collections
import collections.abc
import contextlib
import importlib
import io
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def accasim(trace: Path, nodes: int) -> dict[str, float]:
    """Seconds of CPU, tasks and the mean wait."""
    for name in ("Mapping", "MutableMapping", "Iterable", "Callable"):
        if not hasattr(collections, name):  # where AccaSim still looks for them
            setattr(collections, name, getattr(collections.abc, name))
    simulators = importlib.import_module("accasim.base.simulator_class")
    schedulers = importlib.import_module("accasim.base.scheduler_class")
    allocators = importlib.import_module("accasim.base.allocator_class")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        system = {
            "system_name": "bench", "start_time": 0, "resources": {"all": 1},
            "groups": {"all": {"core": nodes, "mem": 1 << 40}},
        }  # fmt: skip
        Path("system.json").write_text(json.dumps(system), encoding="ascii")
        queue = schedulers.FirstInFirstOut(allocators.FirstFit())
        outputs = dict.fromkeys(
            ("scheduling_output", "statistics_output", "benchmark_output", "pprint_output"), False
        )
        told = io.StringIO()
        logging.getLogger().addHandler(logging.StreamHandler(told))
        logging.getLogger("accasim").addHandler(logging.StreamHandler(told))
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            simulator = simulators.Simulator(str(trace), "system.json", queue, **outputs)
            begin = time.process_time()
            simulator.start_simulation()
            cpu = time.process_time() - begin
    words = told.getvalue()
    return {
        "cpu_seconds": cpu,
        "tasks": float(words.split("Total jobs:")[1].split()[0]),
        "mean_wait": float(words.split("Avg. waiting times:")[1].split()[0]),
    }


def simpy(trace: Path, nodes: int) -> dict[str, float]:
    """As above."""
    engine = importlib.import_module("simpy")
    tasks = [
        (int(fields[1]), int(fields[3]))
        for fields in map(str.split, trace.read_text(encoding="ascii").splitlines())
        if fields[0] != ";"
    ]
    waited = 0

    def task(run: int) -> Iterator[Any]:
        nonlocal waited
        came = world.now
        with pool.request() as turn:
            yield turn
            waited += world.now - came
            yield world.timeout(run)

    def arrivals() -> Iterator[Any]:
        for at, run in tasks:
            if at > world.now:
                yield world.timeout(at - world.now)
            world.process(task(run))

    begin = time.process_time()
    world = engine.Environment()
    pool = engine.Resource(world, nodes)
    world.process(arrivals())
    world.run()
    cpu = time.process_time() - begin
    return {"cpu_seconds": cpu, "tasks": float(len(tasks)), "mean_wait": waited / len(tasks)}


PEERS = {"accasim": accasim, "simpy": simpy}


def main() -> None:
    """Run one."""
    name, trace, nodes = sys.argv[1:]
    print(json.dumps(PEERS[name](Path(trace).resolve(), int(nodes))))


if __name__ == "__main__":
    main()
