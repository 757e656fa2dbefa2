"""Whole league in one world: brokers, wardens and runners with their links and backends."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple

import msgspec

from hanse.core.config import BrokerConfig, RunnerConfig, Timings, WardenConfig
from hanse.core.machine import Machine
from hanse.model.effects import LaunchAttempt
from hanse.sim.backend import AttemptObserver, PlannedEnd, SimulatedBackend
from hanse.sim.disk import Durability
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.network import SimulatedNetwork
from hanse.sim.process import Process
from hanse.sim.process_clock import ProcessClock
from hanse.sim.runner_process import RunnerProcess
from hanse.sim.world import VirtualWorld

SLICE_TASKS: Final = 2
"""Tasks that a cancellation ends at a time: few, because simulated jobs are small, so that many
cancellations are interrupted by other events."""


class PolicyNames(msgspec.Struct, frozen=True):
    """Names of the policies that all brokers and wardens of a league use."""

    order: str = "fifo"
    placer: str = "best-fit"
    rank: str = "rotate"
    sizer: str = "least"
    node_ranker: str = "first"


BrokerFactory = Callable[[BrokerConfig, PolicyNames], Machine]
WardenFactory = Callable[[WardenConfig, PolicyNames], Machine]


class LeagueFactories(NamedTuple):
    """Factories of a league's machines and processes. Tests plant bugs by replacing them."""

    broker: BrokerFactory
    warden: WardenFactory
    runner: Callable[[RunnerConfig], Machine]
    process: type[JournalledProcess] = JournalledProcess
    runner_process: type[RunnerProcess] = RunnerProcess


class LeagueVersion(NamedTuple):
    """Members of the league in one version of its file. New members are appended; retired ones keep their
    place."""

    brokers: tuple[str, ...]
    clusters: tuple[str, ...]
    retired: tuple[str, ...] = ()
    """Brokers and clusters that have left for good."""
    version: int = 0
    since: tuple[tuple[str, int], ...] = ()
    """Version in which each new member joined."""
    drained: tuple[str, ...] = ()
    """Clusters of ``retired`` that are on record as drained when they left."""


class LeagueDesign(NamedTuple):
    """Specification of a simulated league."""

    brokers: tuple[str, ...]
    wardens: tuple[WardenConfig, ...]
    timings: Timings = Timings()
    durability: Durability = Durability()
    policies: PolicyNames = PolicyNames()
    lost_max: int = 50
    decisions: bool = True
    joining: tuple[str, ...] = ()
    """Brokers and clusters that join later."""

    def first_version(self) -> LeagueVersion:
        """Return the members at the start."""
        return LeagueVersion(
            tuple(name for name in self.brokers if name not in self.joining),
            tuple(warden.name for warden in self.wardens if warden.name not in self.joining),
        )


class SimulatedLeague:
    """Processes of a league, by role and name, in the order of the design."""

    def __init__(
        self, world: VirtualWorld, network: SimulatedNetwork, factories: LeagueFactories,
        design: LeagueDesign, rng: Random,
        draw_clock: Callable[[], ProcessClock] = ProcessClock,
    ) -> None:  # fmt: skip
        self.world = world
        self.network = network
        self.design = design
        self.brokers: dict[str, JournalledProcess] = {}
        self.wardens: dict[str, JournalledProcess] = {}
        self.runners: dict[str, RunnerProcess] = {}
        self.backends: dict[str, SimulatedBackend] = {}
        self._factories = factories
        self._rng = rng
        self._draw_clock = draw_clock
        self._process_count = 0
        first = design.first_version()
        self._add_brokers(first)
        for warden in design.wardens:
            self._add_cluster(warden, first)
        self._link_processes()
        for name in design.joining:
            for process in self.processes_of(name):
                process.is_member = False

    @property
    def journalled_processes(self) -> list[JournalledProcess]:
        """Brokers, then wardens."""
        return [*self.brokers.values(), *self.wardens.values()]

    @property
    def processes(self) -> list[Process]:
        """Brokers, wardens, runners."""
        return [*self.journalled_processes, *self.runners.values()]

    def find_process(self, name: str) -> Process | None:
        """Return the process of this name; None if there is none."""
        return self.brokers.get(name) or self.wardens.get(name) or self.runners.get(name)

    def member(self, name: str) -> JournalledProcess:
        """Return the process of a broker, or of a cluster's warden."""
        return self.brokers.get(name) or self.wardens[name]

    def processes_of(self, name: str) -> list[Process]:
        """Return the process of a broker, or a cluster's warden and runners."""
        if name in self.brokers:
            return [self.brokers[name]]
        config = next(warden for warden in self.design.wardens if warden.name == name)
        return [self.wardens[name], *(self.runners[runner] for runner in runners_of(config))]

    def add_backends(
        self,
        planned_end: Callable[[LaunchAttempt], PlannedEnd],
        observer: AttemptObserver,
        poll_interval: int = 0,
    ) -> None:
        """Give every runner its backend."""
        for cluster in self.design.wardens:
            for name in runners_of(cluster):
                rng = Random(self._rng.getrandbits(64))
                self.backends[name] = SimulatedBackend(
                    self.runners[name], cluster.name, planned_end, observer, rng, poll_interval
                )

    def start(self) -> None:
        """Start every process."""
        for process in self.processes:
            process.restart()

    def count_marks(self) -> dict[str, int]:
        """Return how often each coverage mark was reached, in all incarnations, by name of the mark."""
        total: dict[str, int] = {}
        for process in self.processes:
            for marks in (process.marks, process.machine.marks if process.is_up else {}):
                for mark, times in marks.items():
                    total[mark] = total.get(mark, 0) + times
        return dict(sorted(total.items()))

    def _next_process_settings(self) -> tuple[int, Random, ProcessClock]:
        self._process_count += 1
        return self._process_count, Random(self._rng.getrandbits(64)), self._draw_clock()

    def machine_factory(self, name: str, members: LeagueVersion) -> Callable[[], Machine]:
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
                drained=members.drained,
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
        return lambda: factories.warden(cluster, design.policies)

    def _add_brokers(self, first: LeagueVersion) -> None:
        for name in self.design.brokers:
            number, rng, clock = self._next_process_settings()
            self.brokers[name] = self._factories.process(
                name,
                number,
                self._first_machine_factory(name, first),
                self.network,
                rng,
                clock,
                self.design.durability,
            )

    def _first_machine_factory(self, name: str, first: LeagueVersion) -> Callable[[], Machine]:
        """Return a broker's first factory; one that joins later starts as if it were the only new member."""
        brokers, clusters = first.brokers, first.clusters
        if name in self.design.joining and name in self.design.brokers:
            brokers = (*brokers, name)
        return self.machine_factory(name, LeagueVersion(brokers, clusters))

    def _add_cluster(self, config: WardenConfig, first: LeagueVersion) -> None:
        factories, design = self._factories, self.design
        number, rng, clock = self._next_process_settings()
        self.wardens[config.name] = factories.process(
            config.name,
            number,
            self.machine_factory(config.name, first),
            self.network,
            rng,
            clock,
            design.durability,
        )
        for name in runners_of(config):
            nodes = tuple(index for index, node in enumerate(config.nodes) if node.runner == name)
            runner = RunnerConfig(name=name, warden=config.name, nodes=nodes, timings=design.timings)

            def factory(runner: RunnerConfig = runner) -> Machine:
                return factories.runner(runner)

            number, rng, clock = self._next_process_settings()
            self.runners[name] = factories.runner_process(
                name, number, factory, self.network, rng, clock, design.durability
            )

    def _link_processes(self) -> None:
        """Link brokers with brokers and wardens, and wardens with their runners."""
        brokers, network = list(self.brokers.values()), self.network
        for broker in brokers:
            for peer in brokers:
                if peer is not broker:
                    network.add_link(broker, peer)
        for config in self.design.wardens:
            warden = self.wardens[config.name]
            for other in (*brokers, *(self.runners[name] for name in runners_of(config))):
                network.add_link(warden, other)
                network.add_link(other, warden)


def runners_of(config: WardenConfig) -> Sequence[str]:
    """Return the runners of a cluster, in the order of their first nodes."""
    return list({node.runner: None for node in config.nodes})
