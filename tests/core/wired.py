"""A league wired directly, for the tests of the machines: no network, no faults unless a test asks for them.

Messages are delivered in the order they were sent, at once; time passes only when a test lets it. The
backend is the test itself: it says which task ends, and how. Everything said is kept, so that a story
reads as events in, messages out.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import TypeVar

from hanse.core.broker.broker import Broker
from hanse.core.config import BrokerConfig, NodeConfig, RunnerConfig, Timings, WardenConfig
from hanse.core.machine import Machine
from hanse.core.runner.runner import Runner
from hanse.core.warden.warden import Warden
from hanse.model.constraints import Value
from hanse.model.decision_record import DecisionRecord
from hanse.model.effects import (
    Effect,
    ExtendWatchdog,
    ForgetAttempt,
    JobAccepted,
    JobSettled,
    KillAttempt,
    LaunchAttempt,
    RecordDecision,
    RequestAdvice,
    RequestRejected,
    SendMessage,
    TaskSettled,
    TasksSettled,
    WakeAt,
)
from hanse.model.events import (
    BackendReported,
    Booted,
    CancelRequested,
    DrainRequested,
    Event,
    JobSubmitted,
    MessageReceived,
    TasksChanged,
    Tick,
)
from hanse.model.ids import SECOND, JobId, TaskId, task_id
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import AttemptEnd, Envelope, Message, Outcome, ResourceUsage
from hanse.model.resources import Resources
from hanse.registry import NODE_RANKERS, make_policies

T = TypeVar("T")

USUAL = Timings()
DOUBLED = 0.2
"""Share of messages that arrive twice in an unruly network."""
STEPS_MAX = 200_000
"""Messages that one call may set off; more is a live-lock."""


def node(cpu: int = 4_000, runner: str = "r1", **attributes: Value) -> NodeConfig:
    """A node of so many milli-CPU."""
    return NodeConfig(Resources(cpu=cpu), tuple(sorted(attributes.items())), runner)


def tasks(count: int = 1, cpu: int = 1_000, **rest: object) -> TaskGroup:
    """A group of equal tasks."""
    return TaskGroup(count=count, ask=Resources(cpu=cpu), **rest)  # type: ignore[arg-type]


def job(*groups: TaskGroup, **rest: object) -> JobSpec:
    """A job of these groups."""
    return JobSpec(groups=groups, **rest)  # type: ignore[arg-type]


class Wired:
    """Brokers, wardens and their runners in one room. Clusters are given by name, with their nodes."""

    slice_tasks = 4_096
    """Tasks of a cancelled job that one event ends."""

    def __init__(
        self, clusters: dict[str, tuple[NodeConfig, ...]], brokers: tuple[str, ...] = ("b1",),
        timings: Timings = USUAL, reserve: int = 0, order: str = "fifo", placer: str = "best-fit",
        sizer: str = "least", boot: bool = True, *, node_ranker: str = "first",
        cluster_ranker: str = "rotate",
    ) -> None:  # fmt: skip
        self.now = 0
        self.machines: dict[str, Machine] = {}
        self.makers: dict[str, Callable[[], Machine]] = {}
        self.wakes: list[tuple[int, str]] = []
        self.mail: deque[Envelope] = deque()
        self.said: list[tuple[str, str, Message]] = []
        """Source, target and body of every message, as sent."""
        self.live: dict[tuple[TaskId, int], tuple[str, LaunchAttempt]] = {}
        """What the backends run: cluster and launch."""
        self.runner_of: dict[tuple[TaskId, int], str] = {}
        """Which runner was told to launch an attempt."""
        self.ended: dict[str, dict[tuple[TaskId, int], AttemptEnd]] = {}
        """Runner -> what it has not yet been told to forget."""
        self.replies: dict[int, JobAccepted | RequestRejected] = {}
        self.settled: dict[TaskId, tuple[int, Outcome]] = {}
        self.over: dict[JobId, Outcome] = {}
        self.decisions: list[DecisionRecord] = []
        self.asked: list[tuple[str, RequestAdvice]] = []
        """Who asked for advice, and what."""
        self.guards: list[tuple[str, int]] = []
        self.deaf: dict[str, bool] = {}
        """Machines that nothing reaches for now (what is sent to them is lost)."""
        self.loses: Callable[[Envelope], bool] = lambda _: False
        """Which messages get lost."""
        self.unruly: Random | None = None
        """With one: messages arrive in any order, and some arrive twice."""
        self.stubborn = False
        """Whether killed attempts go on until the test ends them."""
        self.cluster_of: dict[str, str] = {}
        self.requests = 0
        self.epochs: dict[str, int] = {}
        self._add_brokers(clusters, brokers, timings, (order, placer, cluster_ranker, sizer))
        self._add_clusters(clusters, brokers, timings, reserve, node_ranker)
        self.capacity = {
            (cluster, at): one.capacity for cluster, nodes in clusters.items() for at, one in enumerate(nodes)
        }
        if boot:
            for name in self.machines:
                self.boot(name)
            self.run(3 * SECOND)

    def _add_clusters(
        self,
        clusters: dict[str, tuple[NodeConfig, ...]],
        brokers: tuple[str, ...],
        timings: Timings,
        reserve: int,
        node_ranker: str,
    ) -> None:
        for cluster, nodes in clusters.items():
            named = tuple(
                NodeConfig(one.capacity, one.attributes, f"{cluster}.{one.runner}") for one in nodes
            )
            warden = WardenConfig(cluster, named, brokers, timings, reserve)
            self._add(cluster, lambda warden=warden: Warden(warden, NODE_RANKERS.get(node_ranker)()))  # type: ignore[misc]
            for runner in dict.fromkeys(one.runner for one in named):
                places = tuple(at for at, one in enumerate(named) if one.runner == runner)
                runs = RunnerConfig(runner, cluster, places, timings)
                self.cluster_of[runner] = cluster
                self.ended[runner] = {}
                self._add(runner, lambda runs=runs: Runner(runs))  # type: ignore[misc]

    def _add_brokers(
        self, clusters: dict[str, tuple[NodeConfig, ...]], brokers: tuple[str, ...], timings: Timings,
        policies: tuple[str, str, str, str],
    ) -> None:  # fmt: skip
        for number, name in enumerate(brokers, 1):
            config = BrokerConfig(
                name, number, brokers, tuple(clusters), timings, slice_tasks=self.slice_tasks
            )
            self._add(
                name,
                lambda config=config: Broker(  # type: ignore[misc]
                    config,
                    *make_policies(*policies),
                ),
            )

    def _add(self, name: str, make: Callable[[], Machine]) -> None:
        self.makers[name] = make
        self.machines[name] = make()

    # --- what happens ---------------------------------------------------------------------------------------

    def boot(self, name: str) -> None:
        """Start a process, or start it again with the state it had (its journal)."""
        self.deaf.pop(name, None)
        self.epochs[name] = epoch = self.epochs.get(name, 0) + 1
        self.give(name, Booted(self.now, epoch, 7 * epoch + 11))
        if name in self.cluster_of:
            running = tuple(
                (task, attempt, launch.shard, launch.is_movable)
                for (task, attempt), (_, launch) in self.live.items()
                if self.runner_of[task, attempt] == name
            )
            self.give(name, BackendReported(self.now, running, tuple(self.ended[name].values())))

    def restart(self, name: str) -> None:
        """Crash and come back: from the dumped state, or with nothing (a runner)."""
        fresh = self.makers[name]()
        if name not in self.cluster_of:
            fresh.restore(self.machines[name].dump())
        self.machines[name] = fresh
        self.boot(name)
        self.deliver()

    def give(self, name: str, event: Event) -> list[Effect]:
        """Hand an event to a machine and perform what comes of it, without delivering messages."""
        commands = self.machines[name].handle(event)
        for command in commands:
            self._perform_each(name, command)
        self.asked += [(name, command) for command in commands if isinstance(command, RequestAdvice)]
        return commands

    def _perform_each(self, name: str, command: Effect) -> None:
        for one in command.expand() if isinstance(command, TasksSettled) else (command,):
            self._perform(name, one)

    def _perform(self, name: str, command: Effect) -> None:
        if isinstance(command, SendMessage):
            self.said.append((name, command.envelope.target, command.envelope.body))
            self.mail.append(command.envelope)
        elif isinstance(command, WakeAt):
            heappush(self.wakes, (command.at, name))
        elif isinstance(command, JobAccepted | RequestRejected):
            self.replies[command.request] = command
        elif isinstance(command, TaskSettled):
            known = self.settled.setdefault(command.task, (command.attempt, command.outcome))
            assert known == (command.attempt, command.outcome), "a task has two terminal states"
        elif isinstance(command, JobSettled):
            self.over[command.job] = command.outcome
        elif isinstance(command, RecordDecision):
            self.decisions.append(command.decision)
        elif isinstance(command, LaunchAttempt):
            self._launch(name, command)
        elif isinstance(command, KillAttempt):
            if not self.stubborn:
                self.exit(command.task, command.attempt, Outcome.CANCELLED, -15)
        elif isinstance(command, ExtendWatchdog):
            self.guards.append((name, command.until))
        elif isinstance(command, ForgetAttempt):
            self.ended[name].pop((command.task, command.attempt), None)

    def _launch(self, runner: str, launch: LaunchAttempt) -> None:
        assert not any(task == launch.task for task, _ in self.live), "two live attempts of one task"
        self.runner_of[launch.task, launch.attempt] = runner
        self.live[launch.task, launch.attempt] = (self.cluster_of[runner], launch)
        self.check_room()
        self.give(runner, TasksChanged(self.now, ((launch.task, launch.attempt),), ()))

    def exit(
        self, task: TaskId, attempt: int, outcome: Outcome = Outcome.SUCCEEDED, code: int = 0,
        usage: ResourceUsage | None = None,
    ) -> None:  # fmt: skip
        """An attempt ends on its node."""
        if self.live.pop((task, attempt), None) is None:
            return
        runner = self.runner_of[task, attempt]
        end = AttemptEnd(task, attempt, outcome, code, usage)
        self.ended[runner][task, attempt] = end
        if runner not in self.deaf:
            self.give(runner, TasksChanged(self.now, (), (end,)))

    def deliver(self, limit: int = STEPS_MAX) -> None:
        """Deliver what was sent, and what is said in answer, until nobody says anything."""
        while self.mail:
            self.step()
            limit -= 1
            assert limit > 0, "the machines talk without end"

    def step(self) -> None:
        """Deliver the oldest message (any, in an unruly network)."""
        if self.unruly is not None:
            self.mail.rotate(-self.unruly.randrange(len(self.mail)))
        envelope = self.mail.popleft()
        self.hand_over(envelope)
        if self.unruly is not None and self.unruly.random() < DOUBLED:
            self.hand_over(envelope)

    def hand_over(self, envelope: Envelope) -> None:
        """Let a message arrive."""
        if envelope.target not in self.deaf and not self.loses(envelope):
            self.give(envelope.target, MessageReceived(self.now, envelope))

    def prompt(self, name: str) -> None:
        """Deliver everything, with a tick for one machine in between, while no time passes."""
        self.deliver()
        self.give(name, Tick(self.now))
        self.deliver()

    def run(self, duration: int) -> None:
        """Let time pass: every asked-for tick at its time, and all that it sets off."""
        until = self.now + duration
        self.deliver()
        while self.wakes and self.wakes[0][0] <= until:
            at, name = heappop(self.wakes)
            self.now = max(self.now, at)
            if name not in self.deaf:
                self.give(name, Tick(self.now))
            self.deliver()
        self.now = until

    # --- what people do -------------------------------------------------------------------------------------

    def hand_in(self, spec: JobSpec, broker: str = "b1") -> int:
        """Submit without waiting; the number of the request."""
        self.requests += 1
        self.give(broker, JobSubmitted(self.now, "me", self.requests, spec))
        return self.requests

    def submit(self, spec: JobSpec, broker: str = "b1") -> JobId:
        """Submit, and let what can happen at once happen; the job's number."""
        request = self.hand_in(spec, broker)
        self.run(SECOND)
        reply = self.replies[request]
        assert isinstance(reply, JobAccepted), reply
        return reply.job

    def rejected(self, spec: JobSpec, broker: str = "b1") -> str:
        """Submit what ought to be turned down; the reason."""
        request = self.hand_in(spec, broker)
        self.deliver()
        reply = self.replies[request]
        assert isinstance(reply, RequestRejected), reply
        return reply.reason

    def cancel(self, number: JobId, broker: str = "b1") -> None:
        """Ask for a job to be ended."""
        self.requests += 1
        self.give(broker, CancelRequested(self.now, "me", self.requests, number))
        self.run(SECOND)

    def drain(self, cluster: str, *nodes: int, closed: bool = True) -> None:
        """Close nodes to new work, or open them."""
        self.give(cluster, DrainRequested(self.now, nodes, closed))
        self.run(SECOND)

    def end(self, number: JobId, *indices: int, outcome: Outcome = Outcome.SUCCEEDED, code: int = 0) -> None:
        """The live attempts of these tasks of a job end (none given: all of the job's)."""
        for task, attempt in list(self.live):
            if any(task == task_id(number, index) for index in indices or range(1 << 12)):
                self.exit(task, attempt, outcome, code)
        self.run(SECOND)

    # --- what is seen ---------------------------------------------------------------------------------------

    def bodies(self, kind: type[T], since: int = 0) -> list[T]:
        """All messages of a kind, from the ``since``-th message on."""
        return [body for _, _, body in self.said[since:] if isinstance(body, kind)]

    def running(self, number: JobId) -> dict[int, tuple[str, int]]:
        """Task -> cluster and node, for the live attempts of a job."""
        found = {}
        for (task, _), (cluster, launch) in self.live.items():
            if task >> 20 == number:
                found[task & 0xFFFFF] = (cluster, launch.node)
        return dict(sorted(found.items()))

    def sizes(self, number: JobId) -> dict[int, int]:
        """Task -> milli-CPU it was given."""
        return {
            task & 0xFFFFF: launch.size.cpu
            for (task, _), (_, launch) in sorted(self.live.items())
            if task >> 20 == number
        }

    def outcome(self, number: JobId, index: int = 0) -> Outcome | None:
        """How a task ended for good; None while it has not."""
        found = self.settled.get(task_id(number, index))
        return found[1] if found else None

    def marks(self, name: str) -> dict[str, int]:
        """A machine's coverage marks."""
        return self.machines[name].marks

    def check_room(self) -> None:
        """No node runs more than it has."""
        used: dict[tuple[str, int], Resources] = {}
        for cluster, launch in self.live.values():
            place = (cluster, launch.node)
            used[place] = used.get(place, Resources()).plus(launch.size)
        for place, amount in used.items():
            assert amount.fits(self.capacity[place]), f"{place} runs {amount}"

    def check(self) -> None:
        """Every machine's own invariants, and the room."""
        self.check_room()
        for machine in self.machines.values():
            machine.check()

    def check_idle(self) -> None:
        """Nothing is left over."""
        self.check()
        for name, machine in self.machines.items():
            if isinstance(machine, Broker | Warden):
                assert machine.find_leftovers() == [], name
