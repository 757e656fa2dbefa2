"""What looking on costs: rounds of a broker and a warden with and without their watches.

``python bench/observe.py --json FILE`` writes what it prints. Broker and warden are the real machines in one
process (``bench/rounds.py``), with nothing around them: no journal, no TLS, no processes, which cost a live
member many times more for each task. So ``ratio`` is the worst that watching can do; ``live`` sets the same
cost beside what a member's shell does with an event at the least: encoding it for the journal and the wire.
``scrape`` is one answer to Prometheus. Rates are per second of CPU time, the best of several repeats.
"""

import asyncio
import gc
import platform
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import msgspec
from figures import as_program
from rounds import JOB_TASKS, NODES, REPEATS, RUNNER, Pair

from hanse.core.config import NodeConfig
from hanse.league.config import Address, ClusterEntry
from hanse.live.clock import Clock
from hanse.live.journal.journal import Journal
from hanse.live.readmodel.feeder import ReadModelFeeder
from hanse.live.telemetry.broker_metrics import BrokerMetrics
from hanse.live.telemetry.member_metrics import ObservedDaemon
from hanse.live.telemetry.prometheus_text import render
from hanse.live.telemetry.warden_metrics import WardenMetrics
from hanse.model.effects import Effect, SendMessage, TaskSettled
from hanse.model.events import Event
from hanse.model.ids import SECOND
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.resources import Resources
from hanse.security.identity import Identity, Role

ROUNDS = 10
SCRAPES = 20
_encode = msgspec.msgpack.Encoder().encode


class NoFeed:
    """In place of the read model, which is measured by ``bench/reads.py``."""

    applied = 0

    def told(self, position: int, event: Event, commands: list[Effect]) -> None:
        """Nothing."""


class NoDaemon:
    """In place of the daemon around a machine."""

    identity = Identity("bench", Role.BROKER, "b1")

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.wire_counters: dict[str, int] = {}


class Watched(Pair):
    """The machines, and who looks on; what each of them takes is timed apart."""

    def __init__(self, nodes: int, journal: Journal) -> None:
        self.watches: dict[str, Any] = {}
        self.watching = self.encoding = 0.0
        super().__init__(nodes)
        daemon = cast(ObservedDaemon, NoDaemon())
        node = NodeConfig(Resources(cpu=16_000, memory=64 << 30), (), RUNNER)
        entry = ClusterEntry("c1", Address(), Address(), (node,) * nodes)
        self.watches["b1"] = BrokerMetrics(
            daemon, self.broker, Clock(), journal, cast(ReadModelFeeder, NoFeed())
        )
        self.watches["c1"] = WardenMetrics(daemon, self.warden, entry, journal)

    def give(self, name: str, event: Event) -> None:
        """As without, and then the watch is told; and then the event is encoded as a shell does."""
        machine = self.machines[name]
        begin = time.process_time()
        commands = machine.handle(event)
        done = time.process_time()
        self.spent += done - begin
        if name in self.watches:
            self.watches[name].told(0, event, commands)
            told = time.process_time()
            self.watching += told - done
            _encode(event)
            for command in commands:
                if type(command) is SendMessage:
                    _encode(command.envelope)
            self.encoding += time.process_time() - told
        for command in commands:
            if type(command) is SendMessage:
                self.mail.append(command.envelope)
            elif type(command) is TaskSettled:
                self.settled += 1


def measure(journal: Journal, tasks: int, jobs: int) -> dict[str, float]:
    """Seconds of the machines, of the watches and of encoding for each task; of the best repeat each."""
    pair = Watched(NODES, journal)
    spec = JobSpec(groups=(TaskGroup(count=tasks, ask=Resources(cpu=1_000, memory=1 << 30)),))
    best = {"machines": 1e9, "watching": 1e9, "encoding": 1e9}
    for _ in range(REPEATS):
        gc.collect()
        gc.disable()
        pair.timed()
        pair.watching = pair.encoding = 0.0
        for _ in range(jobs):
            pair.claim(spec)
            assert pair.free() == tasks, "the cluster is too small"
            pair.deliver()
        pair.pass_time(SECOND)
        gc.enable()
        found = {"machines": pair.timed(), "watching": pair.watching, "encoding": pair.encoding}
        best = {part: min(best[part], seconds / (jobs * tasks)) for part, seconds in found.items()}
    warden: WardenMetrics = pair.watches["c1"]
    begin = time.process_time()
    for _ in range(SCRAPES):
        render(asyncio.run(warden.own_families()))
    best["scrape"] = (time.process_time() - begin) / SCRAPES
    return best


def run() -> dict[str, Any]:
    """Every figure, by tasks a job."""
    result: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "cpu": platform.machine()},
        "unit": "tasks per CPU-second; scrape: milliseconds of CPU time",
        "nodes": NODES,
        "rounds": {},
    }
    with tempfile.TemporaryDirectory(prefix="hanse-bench-") as name:
        journal, _ = Journal.open(Path(name) / "journal")
        for tasks in JOB_TASKS:
            one = measure(journal, tasks, ROUNDS * max(JOB_TASKS) // tasks)
            machines, watching, encoding = one["machines"], one["watching"], one["encoding"]
            result["rounds"][str(tasks)] = {
                "without": round(1 / machines),
                "with": round(1 / (machines + watching)),
                "ratio": round(machines / (machines + watching), 3),
                "live": round((machines + encoding) / (machines + encoding + watching), 3),
                "watching_microseconds": round(watching * 1e6, 3),
                "scrape": round(one["scrape"] * 1e3, 2),
            }
        journal.close()
    return result


if __name__ == "__main__":
    as_program(run, "Tasks per CPU-second with and without metrics.")
