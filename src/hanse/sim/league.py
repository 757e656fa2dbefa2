"""Whole league in one world: brokers, wardens and runners with their links and backends."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

import msgspec

from hanse.core.config import BrokerConfig, RunnerConfig, Timings, WardenConfig
from hanse.core.machine import Machine
from hanse.model.effects import LaunchAttempt
from hanse.sim.backend import Backend, Fate, Truth
from hanse.sim.network import Network
from hanse.sim.process import Clock, Durability, Process
from hanse.sim.runner_process import RunnerProcess
from hanse.sim.world import World

SLICE_TASKS: Final = 2
"""Tasks that a cancellation ends at a time: few, because simulated jobs are small, so that many
cancellations are interrupted by other events."""


class Policies(msgspec.Struct, frozen=True):
    """Names of the policies that all brokers of a league use."""

    order: str = "fifo"
    placer: str = "best-fit"
    rank: str = "rotate"
    sizer: str = "least"


BrokerFactory = Callable[[BrokerConfig, Policies], Machine]


class Factories(NamedTuple):
    """Factories of a league's machines and processes. Tests plant bugs by replacing them."""

    broker: BrokerFactory
    warden: Callable[[WardenConfig], Machine]
    runner: Callable[[RunnerConfig], Machine]
    process: type[Process] = Process
    runner_process: type[RunnerProcess] = RunnerProcess


class Members(NamedTuple):
    """Members of the league in one version of its file. New members are appended; retired ones keep their
    place."""

    brokers: tuple[str, ...]
    clusters: tuple[str, ...]
    retired: tuple[str, ...] = ()
    """Brokers and clusters that have left for good."""
    version: int = 0
    since: tuple[tuple[str, int], ...] = ()
    """Version in which each new member joined."""


class Design(NamedTuple):
    """Specification of a simulated league."""

    brokers: tuple[str, ...]
    wardens: tuple[WardenConfig, ...]
    timings: Timings = Timings()
    durability: Durability = Durability()
    policies: Policies = Policies()
    lost_max: int = 50
    decisions: bool = True
    later: tuple[str, ...] = ()
    """Brokers and clusters that join later."""

    def members(self) -> Members:
        """Return the members at the start."""
        return Members(
            tuple(name for name in self.brokers if name not in self.later),
            tuple(warden.name for warden in self.wardens if warden.name not in self.later),
        )


class League:
    """Processes of a league, by role and name, in the order of the design."""

    def __init__(
        self, world: World, network: Network, factories: Factories, design: Design, rng: Random,
        clock: Callable[[], Clock] = Clock,
    ) -> None:  # fmt: skip
        self.world = world
        self.network = network
        self.design = design
        self.brokers: dict[str, Process] = {}
        self.wardens: dict[str, Process] = {}
        self.runners: dict[str, RunnerProcess] = {}
        self.backends: dict[str, Backend] = {}
        self._factories = factories
        self._rng = rng
        self._clock = clock
        self._numbers = 0
        first = design.members()
        self._add_brokers(first)
        for warden in design.wardens:
            self._add_cluster(warden, first)
        self._join()
        for name in design.later:
            for process in self.host_of(name):
                process.is_member = False

    @property
    def journalled(self) -> list[Process]:
        """Brokers, then wardens."""
        return [*self.brokers.values(), *self.wardens.values()]

    @property
    def processes(self) -> list[Process]:
        """Brokers, wardens, runners."""
        return [*self.journalled, *self.runners.values()]

    def process(self, name: str) -> Process | None:
        """Return the process of this name; None if there is none."""
        return self.brokers.get(name) or self.wardens.get(name) or self.runners.get(name)

    def host_of(self, name: str) -> list[Process]:
        """Return the process of a broker, or a cluster's warden and runners."""
        if name in self.brokers:
            return [self.brokers[name]]
        config = next(warden for warden in self.design.wardens if warden.name == name)
        return [self.wardens[name], *(self.runners[runner] for runner in runners_of(config))]

    def equip(self, fate: Callable[[LaunchAttempt], Fate], truth: Truth) -> None:
        """Give every runner its backend."""
        for cluster in self.design.wardens:
            for name in runners_of(cluster):
                rng = Random(self._rng.getrandbits(64))
                self.backends[name] = Backend(self.runners[name], cluster.name, fate, truth, rng)

    def boot(self) -> None:
        """Start every process."""
        for process in self.processes:
            process.restart()

    def marks(self) -> dict[str, int]:
        """Return how often each coverage mark was reached, in all incarnations, by name of the mark."""
        total: dict[str, int] = {}
        for process in self.processes:
            for marks in (process.marks, process.machine.marks if process.up else {}):
                for mark, times in marks.items():
                    total[mark] = total.get(mark, 0) + times
        return dict(sorted(total.items()))

    def _next(self) -> tuple[int, Random, Clock]:
        self._numbers += 1
        return self._numbers, Random(self._rng.getrandbits(64)), self._clock()

    def maker(self, name: str, members: Members) -> Callable[[], Machine]:
        """Return a factory for the machine of a broker or a warden with the settings of this version."""
        design, factories = self.design, self._factories
        since = dict(members.since)
        if name in design.brokers:
            config = BrokerConfig(
                name=name,
                number=design.brokers.index(name) + 1,
                brokers=members.brokers,
                clusters=members.clusters,
                timings=design.timings,
                retired=members.retired,
                version=members.version,
                brokers_since=tuple(since.get(broker, 0) for broker in members.brokers),
                clusters_since=tuple(since.get(cluster, 0) for cluster in members.clusters),
                lost_max=design.lost_max,
                decisions=design.decisions,
                slice_tasks=SLICE_TASKS,
            )
            return lambda: factories.broker(config, design.policies)
        warden = next(warden for warden in design.wardens if warden.name == name)
        retired = tuple(broker for broker in members.retired if broker in members.brokers)
        cluster = msgspec.structs.replace(warden, brokers=members.brokers, retired=retired)
        return lambda: factories.warden(cluster)

    def _add_brokers(self, first: Members) -> None:
        for name in self.design.brokers:
            number, rng, clock = self._next()
            self.brokers[name] = self._factories.process(
                name, number, self._first_maker(name, first), self.network, rng, clock, self.design.durability
            )

    def _first_maker(self, name: str, first: Members) -> Callable[[], Machine]:
        """Return a broker's first factory; one that joins later starts as if it were the only new member."""
        brokers, clusters = first.brokers, first.clusters
        if name in self.design.later and name in self.design.brokers:
            brokers = (*brokers, name)
        return self.maker(name, Members(brokers, clusters))

    def _add_cluster(self, config: WardenConfig, first: Members) -> None:
        factories, design = self._factories, self.design
        number, rng, clock = self._next()
        self.wardens[config.name] = factories.process(
            config.name, number, self.maker(config.name, first), self.network, rng, clock, design.durability
        )
        for name in runners_of(config):
            nodes = tuple(index for index, node in enumerate(config.nodes) if node.runner == name)
            runner = RunnerConfig(name=name, warden=config.name, nodes=nodes, timings=design.timings)

            def factory(runner: RunnerConfig = runner) -> Machine:
                return factories.runner(runner)

            number, rng, clock = self._next()
            self.runners[name] = factories.runner_process(
                name, number, factory, self.network, rng, clock, design.durability
            )

    def _join(self) -> None:
        """Link brokers with brokers and wardens, and wardens with their runners."""
        brokers, network = list(self.brokers.values()), self.network
        for broker in brokers:
            for peer in brokers:
                if peer is not broker:
                    network.join(broker, peer)
        for config in self.design.wardens:
            warden = self.wardens[config.name]
            for other in (*brokers, *(self.runners[name] for name in runners_of(config))):
                network.join(warden, other)
                network.join(other, warden)


def runners_of(config: WardenConfig) -> Sequence[str]:
    """Return the runners of a cluster, in the order of their first nodes."""
    return list({node.runner: None for node in config.nodes})
