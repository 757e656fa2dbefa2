"""How many tasks a broker and a warden take through their lives in one second of CPU time.

``python bench/rounds.py --json FILE`` writes what it prints. Broker and warden are the real machines,
side by side in one process with no network between them; a stand-in for the runners answers every order
at once. What is timed is all that the two machines do, message by message, in three parts:

``claim``: a job is submitted, the broker matches its tasks to nodes of its view and claims them, the
warden verifies every claim against its ledger, accepts and orders the starts, and the broker takes the
answer.
``free``: the warden takes the runners' reports of starts and ends, frees the room and notes what to tell.
``settle``: the broker takes that news, settles and publishes every task, and the warden forgets them;
beats and acknowledgements are counted here too.

``round`` is ``claim`` and ``free`` together (match, claim, verify, free), ``life`` is all three. The twin
is the same with the kernels in NumPy in place of the compiled ones. Rates are per second of CPU time of
this process, the best of several repeats.
"""

import cProfile
import gc
import platform
import pstats
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from figures import options_of, tell

from hanse.core.broker.broker import Broker
from hanse.core.config import BrokerConfig, NodeConfig, Timings, WardenConfig
from hanse.core.machine import Machine
from hanse.core.messaging.link import LinkSet
from hanse.core.warden.warden import Warden
from hanse.model.effects import Effect, SendMessage, TaskSettled
from hanse.model.events import Booted, Event, JobSubmitted, MessageReceived, Tick
from hanse.model.ids import SECOND
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import (
    AttemptEnd,
    Envelope,
    Message,
    OpenSession,
    Outcome,
    RunnerHeartbeat,
    RunnerOrders,
    RunnerReport,
)
from hanse.model.resources import Resources
from hanse.policy import node_rankers, placers
from hanse.policy.cluster_rankers import RotatingRanker
from hanse.policy.kernels import BACKEND, NATIVE_LOAD_ERROR, numpy_kernels
from hanse.policy.node_rankers import FirstNodeRanker
from hanse.policy.placers import Random
from hanse.policy.queue_orders import Fifo
from hanse.policy.sizers import LeastSizer

NODES = 10_000
CORES = 16
JOB_TASKS = (50, 500)
ROUNDS = 20
REPEATS = 5
RUNNER = "r1"
BAR = 200_000
"""Tasks per CPU-second that a round must reach."""


class Pair:
    """A broker, a warden and a stand-in for its runners, wired directly."""

    def __init__(self, nodes: int) -> None:
        timings = Timings()
        capacity = Resources(cpu=CORES * 1_000, memory=64 << 30)
        config = WardenConfig("c1", (NodeConfig(capacity, (), RUNNER),) * nodes, ("b1",), timings)
        self.broker = Broker(
            BrokerConfig("b1", 1, ("b1",), ("c1",), timings, decisions=False),
            Fifo(),
            Random(),
            RotatingRanker(),
            LeastSizer(),
        )
        self.warden = Warden(config, FirstNodeRanker())
        self.machines: dict[str, Machine] = {"b1": self.broker, "c1": self.warden}
        self.post = LinkSet(RUNNER, timings)
        self.now = 0
        self.mail: list[Envelope] = []
        self.ordered: list[RunnerOrders] = []
        self.settled = 0
        self.spent = 0.0
        self.requests = 0
        self._begin()

    def _begin(self) -> None:
        self.post.reopen("c1", 1 << 20)
        self.give("c1", Booted(0, 1, 11))
        self.give("b1", Booted(0, 1, 13))
        self._say(OpenSession(1 << 20, 0, tuple(range(self.warden._ledger.nodes)), (), ()), soft=True)
        for _ in range(3):
            self.deliver()
            self.pass_time(SECOND)

    def _say(self, body: Message, soft: bool = False) -> None:
        out: list[Effect] = []
        if soft:
            self.post.send_soft(out, "c1", body)
        else:
            self.post.send(out, self.now, "c1", body)  # type: ignore[arg-type]  # a report is sequenced
        self.mail += [command.envelope for command in out if isinstance(command, SendMessage)]

    def give(self, name: str, event: Event) -> None:
        """Hand an event over, with the clock running only while the machine works."""
        machine = self.machines[name]
        begin = time.process_time()
        commands = machine.handle(event)
        self.spent += time.process_time() - begin
        for command in commands:
            if type(command) is SendMessage:
                self.mail.append(command.envelope)
            elif type(command) is TaskSettled:
                self.settled += 1

    def deliver(self) -> None:
        """Deliver until nobody speaks."""
        while self.mail:
            mail, self.mail = self.mail, []
            for envelope in mail:
                if envelope.target == RUNNER:
                    for body in self.post.receive(self.now, envelope):
                        if isinstance(body, RunnerOrders) and body.starts:
                            self.ordered.append(body)
                else:
                    self.give(envelope.target, MessageReceived(self.now, envelope))

    def pass_time(self, duration: int) -> None:
        """Beats, acknowledgements and leases, as they would come."""
        self.now += duration
        self._say(RunnerHeartbeat(1 << 20, self.now), soft=True)
        for name in self.machines:
            self.give(name, Tick(self.now))
        self.deliver()

    def claim(self, spec: JobSpec) -> None:
        """Submit a job; all its tasks are claimed, verified and ordered."""
        self.requests += 1
        self.give("b1", JobSubmitted(self.now, "me", self.requests, spec))
        self.deliver()

    def free(self) -> int:
        """Every ordered task starts and ends, and the warden frees its room; how many there were."""
        ordered, self.ordered = self.ordered, []
        count = 0
        for orders in ordered:
            starts = tuple((start.task, start.attempt) for start in orders.starts)
            ends = tuple(AttemptEnd(task, attempt, Outcome.SUCCEEDED) for task, attempt in starts)
            self._say(RunnerReport(starts, ends))
            count += len(starts)
        reports, self.mail = self.mail, []
        for envelope in reports:
            self.give("c1", MessageReceived(self.now, envelope))
        return count

    def timed(self) -> float:
        """CPU-seconds that the machines took since this was last asked."""
        spent, self.spent = self.spent, 0.0
        return spent


def measure(nodes: int, tasks: int, jobs: int) -> dict[str, float]:
    """Tasks per CPU-second of one part and of the round, best of the repeats."""
    pair = Pair(nodes)
    spec = JobSpec(groups=(TaskGroup(count=tasks, ask=Resources(cpu=1_000, memory=1 << 30)),))
    best: dict[str, float] = {}
    for _ in range(REPEATS):
        spent = {"claim": 0.0, "free": 0.0, "settle": 0.0}
        before = pair.settled
        gc.collect()
        gc.disable()
        for _ in range(jobs):
            pair.timed()
            pair.claim(spec)
            spent["claim"] += pair.timed()
            assert pair.free() == tasks, "the cluster is too small"
            spent["free"] += pair.timed()
            pair.deliver()
            spent["settle"] += pair.timed()
        pair.pass_time(SECOND)
        spent["settle"] += pair.timed()
        gc.enable()
        assert pair.settled - before == jobs * tasks, "not every task was settled"
        spent["round"] = spent["claim"] + spent["free"]
        spent["life"] = spent["round"] + spent["settle"]
        for part, seconds in spent.items():
            best[part] = max(best.get(part, 0.0), jobs * tasks / seconds)
    pair.broker.check()
    pair.warden.check()
    assert not pair.warden._ledger.attempts
    return best


@contextmanager
def twin_kernels() -> Iterator[None]:
    """The kernels in NumPy, wherever the machines and their policies use the compiled ones."""
    places: list[tuple[Any, str]] = [
        (placers, "pick"), (node_rankers, "pick"), (node_rankers, "settle"),
    ]  # fmt: skip
    kept = [(module, name, getattr(module, name)) for module, name in places]
    try:
        for module, name in places:
            setattr(module, name, getattr(numpy_kernels, name))
        yield
    finally:
        for module, name, function in kept:
            setattr(module, name, function)


def run(rounds: int = ROUNDS) -> dict[str, Any]:
    """Every figure, by tasks a job."""
    result: dict[str, Any] = {
        "backend": BACKEND,
        "why_not_native": NATIVE_LOAD_ERROR,
        "machine": {"python": platform.python_version(), "cpu": platform.machine()},
        "unit": "tasks per CPU-second",
        "nodes": NODES,
        "bar": BAR,
        "rounds": {},
    }
    for tasks in JOB_TASKS:
        jobs = rounds * max(JOB_TASKS) // tasks
        real = measure(NODES, tasks, jobs)
        with twin_kernels():
            other = measure(NODES, tasks, jobs)
        result["rounds"][str(tasks)] = {
            part: {"real": round(rate), "twin": round(other[part]), "ratio": round(rate / other[part], 2)}
            for part, rate in real.items()
        }
    return result


def profile(tasks: int) -> None:
    """Print where the time of a round goes."""
    profiler = cProfile.Profile()
    profiler.enable()
    measure(NODES, tasks, ROUNDS * max(JOB_TASKS) // tasks)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    """Measure, print, and write to ``--json``."""
    parser = options_of("Tasks per CPU-second of an in-process broker and warden.")
    parser.add_argument(
        "--profile", type=int, metavar="TASKS", help="profile rounds of jobs of so many tasks"
    )
    options = parser.parse_args()
    if options.profile:
        profile(options.profile)
        return
    tell(run(), options.json)


if __name__ == "__main__":
    main()
