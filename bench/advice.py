"""Elastic work in a whole league, by sizer: how long tasks take from submission to end.

``python bench/advice.py --json FILE`` writes what it prints. Two brokers and three clusters of 16 CPUs and 16
GPUs live in the simulator with the real machines, links of half a millisecond and no faults. Tasks come one
by one, half of a kind that gains nothing from GPUs (4 s), half of one that gains all (20 s of GPU time), with
a tenth of noise; nobody tells the league how long they take. With the sizer ``network`` the trained network
answers every question after ``ANSWER`` as the policy process would. The same seeds draw the same tasks for
every sizer. Times are simulated; only ``advise_ms`` is this machine's.
"""

import statistics
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

from figures import as_program

from hanse.core.config import NodeConfig, WardenConfig
from hanse.league.config import LIVE_TIMINGS
from hanse.learning.edge.network.advice import advise
from hanse.learning.edge.network.network import EdgeNetwork
from hanse.learning.edge.network.network_file import load_network, shipped_path
from hanse.model.effects import LaunchAttempt, RequestAdvice, TaskSettled
from hanse.model.ids import MILLISECOND, SECOND
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import Outcome
from hanse.model.resources import Resources
from hanse.sim.backend import PlannedEnd, SimulatedAttempt
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.league import LeagueDesign, PolicyNames, SimulatedLeague
from hanse.sim.network import SimulatedNetwork as Wires
from hanse.sim.shipped_league import shipped_factories
from hanse.sim.world import VirtualWorld

SIZERS = ("least", "generous", "priced", "network")
BROKERS = ("b1", "b2")
CLUSTERS = ("c1", "c2", "c3")
ANSWER = 5 * MILLISECOND
SPAN = 300 * SECOND
"""For how long tasks come."""
RATES = (2.0, 3.0)
"""Tasks a second."""
SEEDS = 3
LEAST = Resources(cpu=2_000, gpu=1)
MOST = Resources(cpu=16_000, gpu=16)
WARM_UP = SPAN // 4
"""Tasks that come before this teach the league and are not counted."""


class Nobody:
    """Somebody must be told what really happens."""

    def launched(self, cluster: str, runner: str, attempt: SimulatedAttempt) -> None:
        """An attempt begins."""

    def ended(self, cluster: str, attempt: SimulatedAttempt, outcome: Outcome) -> None:
        """An attempt is over."""


class Run:
    """One league, one stream of tasks."""

    def __init__(self, seed: int, sizer: str, rate: float, network: EdgeNetwork) -> None:
        self.world = VirtualWorld()
        self.network = network
        self.came: dict[int, int] = {}
        self.took: list[int] = []
        self._numbers: dict[int, int] = {}
        self.advise: list[float] = []
        self._noise = Random(seed + 1)
        wardens = tuple(
            WardenConfig(name, (NodeConfig(MOST, (), f"{name}r"),), BROKERS, LIVE_TIMINGS)
            for name in CLUSTERS
        )
        design = LeagueDesign(
            BROKERS, wardens, LIVE_TIMINGS, policies=PolicyNames(sizer=sizer), decisions=False
        )
        wires = Wires(self.world, Random(seed + 2))
        self.league = SimulatedLeague(self.world, wires, shipped_factories(), design, Random(seed + 3))
        self.league.add_backends(self.fate, Nobody())
        for broker in self.league.brokers.values():
            broker.set_performers({TaskSettled: self.settled, RequestAdvice: self.answering(broker)})
        self._submit_all(Random(seed), rate)

    def _submit_all(self, rng: Random, rate: float) -> None:
        at, number = 5.0, 0
        while at * SECOND < SPAN:
            at += rng.expovariate(rate)
            kind = rng.choice(("flat", "wide"))
            group = TaskGroup(count=1, ask=LEAST, ask_max=MOST, payload=f"{kind} {number}".encode())
            request = (f"client{number}", number, JobSpec((group,), name=kind))
            self.came[number] = int(at * SECOND)
            self.world.call_at(int(at * SECOND), self.league.brokers[rng.choice(BROKERS)].submit, request)
            number += 1

    def fate(self, launch: LaunchAttempt) -> PlannedEnd:
        """How long an attempt takes."""
        kind = launch.payload.split()[0]
        whole = 4 * SECOND if kind == b"flat" else 20 * SECOND // max(1, launch.size.gpu)
        self._numbers[launch.task] = int(launch.payload.split()[1])
        return int(whole * self._noise.uniform(0.9, 1.1)), Outcome.SUCCEEDED, 0

    def settled(self, command: TaskSettled) -> None:
        """A task is over for everybody."""
        came = self.came.pop(self._numbers[command.task], None)
        if came is not None and came >= WARM_UP:
            self.took.append(self.world.now - came)

    def answering(self, broker: JournalledProcess) -> Callable[[RequestAdvice], None]:
        """The policy process of a broker."""

        def ask(command: RequestAdvice) -> None:
            begun = time.perf_counter()
            choices = advise(self.network, command.request)
            self.advise.append(time.perf_counter() - begun)
            self.world.call_at(self.world.now + ANSWER, broker.on_advice, (command.number, choices))

        return ask

    def play(self) -> None:
        """Everything, to the end."""
        self.league.start()
        while self.came and self.world.now < 10 * SPAN:
            self.world.run(self.world.now + SECOND)


def run() -> dict[str, Any]:
    """All sizers on the same streams: seconds from submission to end, means over the seeds."""
    loaded = load_network(shipped_path())
    assert not isinstance(loaded, str)
    network = loaded[0]
    result: dict[str, Any] = {}
    for rate in RATES:
        for sizer in SIZERS:
            runs = [Run(100 * seed, sizer, rate, network) for seed in range(SEEDS)]
            for one in runs:
                one.play()
            means = [statistics.mean(one.took) / SECOND for one in runs]
            marks = [one.league.count_marks() for one in runs]
            entry = {
                "mean_s": round(statistics.mean(means), 3),
                "by_seed_s": [round(mean, 3) for mean in means],
                "tasks": sum(len(one.took) for one in runs),
                "unfinished": sum(len(one.came) for one in runs),
            }
            if sizer == "network":
                timed = [took for one in runs for took in one.advise]
                entry["questions"] = len(timed)
                entry["advise_ms"] = round(1_000 * statistics.median(timed), 2)
                entry["taken"] = sum(each.get("broker.advice_taken", 0) for each in marks)
                entry["late"] = sum(each.get("broker.advice_late", 0) for each in marks)
                entry["put_aside"] = sum(each.get("broker.advice_guarded", 0) for each in marks)
            result[f"{sizer} at {rate:g} tasks/s"] = entry
            print(f"{sizer} at {rate:g} tasks/s: {entry['mean_s']} s", file=sys.stderr, flush=True)
    return result


if __name__ == "__main__":
    as_program(run, "Elastic work in a simulated league, by sizer.")
