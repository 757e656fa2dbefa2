"""The league as its members know it: their names, their addresses, and the nodes of each cluster.

``league.file`` reads it.
"""

from typing import Final, TypeVar

import msgspec

from hanse.core.config import (
    GANG_PORT_FIRST,
    GANG_PORT_RANGES,
    GANG_PORTS,
    BrokerConfig,
    NodeConfig,
    RunnerConfig,
    Timings,
    WardenConfig,
)
from hanse.model.ids import MILLISECOND, SECOND
from hanse.model.problem import printable_name

LIVE_TIMINGS: Final = Timings(
    delta_linger=5 * MILLISECOND,
    started_linger=50 * MILLISECOND,
    ack_delay=100 * MILLISECOND,
    beat=2 * SECOND,
    runner_beat=2 * SECOND,
    suspect_after=6 * SECOND,
)
"""Timings of the protocol on a real network: people wait for answers, so delays are short."""

UID_MAX: Final = (1 << 31) - 2
"""The largest id that the supervisor's requests can name."""


class LeagueError(Exception):
    """A league file that cannot be used; the message names every problem found."""


class Address(msgspec.Struct, frozen=True):
    """Address of a listener; port 0: not chosen yet."""

    host: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UserRange(msgspec.Struct, frozen=True):
    """User ids, and group ids of the same numbers, that no account of the machine has."""

    first: int = 2_000_000_000
    count: int = 100_000_000

    @property
    def problem(self) -> str:
        """The reason why it cannot be a range of ids, as a clause; empty: it can."""
        if not 1_000 <= self.first <= self.first + self.count - 1 <= UID_MAX:
            return f"user ids for jobs are at least one number between 1000 and {UID_MAX}"
        return ""


class BackendEntry(msgspec.Struct, frozen=True):
    """Backend of a cluster and its settings."""

    kind: str = "process"
    """Name of the kind of backend that runs the cluster's tasks, see ``league.backend_kinds``."""
    sandbox: str = "auto"
    """Sandbox around each task: ``none``, ``namespace``, ``bwrap`` or ``auto``; see
    ``live.backends.process.sandbox``."""
    user: str = ""
    """Account that runs the tasks when the daemon is root; empty: that of the kind (``task_user``)."""
    users: UserRange = UserRange()
    """Range of the user ids of jobs."""
    memory_default: int = 0
    """Bytes of memory for a task that asked for none; 0: a share of its node's, as of its CPUs."""
    output: int = 64 << 20
    """Bytes kept of each output stream of a task."""
    disk: int = 0
    """Bytes that the files of one task may take in its working directory and as output; 0: a quarter of the
    disk."""
    files: int = 0
    """Number of these files; 0: a quarter of the disk's inodes, ``disk_monitor.FILES_MAX`` at most."""
    directory: str = ""
    """Directory of the runners' tasks, with a subdirectory for each runner; empty: the member's own
    directory, on the disk of its journal."""
    limits: str = "auto"
    """Way in which limits are enforced: auto, v2, v1 or rlimit."""
    settings: object = None
    """Settings of this kind alone, of the type that it names; None: it has none."""


class PolicyConfig(msgspec.Struct, frozen=True):
    """Policies of the brokers and the wardens, by name."""

    order: str = "fewest-remaining"
    placer: str = "best-fit"
    rank: str = "best-standing"
    sizer: str = "least"
    node_ranker: str = "first"
    """Policy of the wardens; all others are the brokers'."""


class BrokerEntry(msgspec.Struct, frozen=True):
    """Broker of the league."""

    name: str
    address: Address
    door: Address
    retired: bool = False
    """True if it has left; its place is kept, because members are numbered by their places."""


class RunnerEntry(msgspec.Struct, frozen=True):
    """Runner on a machine of its own."""

    name: str
    address: Address
    door: Address


class ClusterEntry(msgspec.Struct, frozen=True):
    """Cluster of the league."""

    name: str
    address: Address
    door: Address
    nodes: tuple[NodeConfig, ...]
    backend: BackendEntry = BackendEntry()
    reserve: int = 0
    runners: tuple[RunnerEntry, ...] = ()
    retired: bool = False
    """True if it has left; its place is kept."""

    @property
    def own_runner(self) -> str:
        """Name of the runner inside the warden's daemon."""
        return f"{self.name}/runner"


class LeagueConfig(msgspec.Struct, frozen=True):
    """Content of the league file."""

    name: str
    brokers: tuple[BrokerEntry, ...]
    clusters: tuple[ClusterEntry, ...]
    timings: Timings = LIVE_TIMINGS
    policy: PolicyConfig = PolicyConfig()
    version: int = 0
    """Number of changes of the file while the league ran; see ``live.membership``."""
    joined: tuple[tuple[str, int], ...] = ()
    """Version in which each broker and cluster joined that was not there at first."""
    drained: tuple[str, ...] = ()
    """Retired clusters that were drained when they left, with every end acknowledged."""

    @property
    def serving_brokers(self) -> tuple[BrokerEntry, ...]:
        """Brokers that have not retired."""
        return tuple(entry for entry in self.brokers if not entry.retired)

    @property
    def serving_clusters(self) -> tuple[ClusterEntry, ...]:
        """Clusters that have not retired."""
        return tuple(entry for entry in self.clusters if not entry.retired)

    def is_retired(self, name: str) -> bool:
        """True if a broker or a cluster, with its runners, has left."""
        retired = [entry.name for entry in self.brokers if entry.retired]
        for cluster in self.clusters:
            if cluster.retired:
                retired += [cluster.name, *(runner.name for runner in cluster.runners)]
        return name in retired

    def members(self) -> list[str]:
        """Return every member's name: brokers, clusters (their wardens), runners on machines of their own."""
        return [
            *(entry.name for entry in self.brokers),
            *(entry.name for entry in self.clusters),
            *(runner.name for entry in self.clusters for runner in entry.runners),
        ]

    def hosts_of(self, name: str) -> tuple[str, ...]:
        """Return the hosts of a member: its certificate names them, for programs that check them."""
        runners = [runner for entry in self.clusters for runner in entry.runners]
        entries: list[BrokerEntry | ClusterEntry | RunnerEntry] = [*self.brokers, *self.clusters, *runners]
        hosts_by_entry = [(entry.door.host, entry.address.host) for entry in entries if entry.name == name]
        return tuple(dict.fromkeys(host for hosts in hosts_by_entry for host in hosts))

    def broker(self, name: str) -> BrokerEntry:
        """Return the broker of this name; raise ``LeagueError`` with the known names if there is none."""
        return _find_entry(name, self.brokers, "broker")

    def cluster(self, name: str) -> ClusterEntry:
        """Return the cluster of this name."""
        return _find_entry(name, self.clusters, "cluster")

    def cluster_of_runner(self, name: str) -> tuple[ClusterEntry, RunnerEntry]:
        """Return the cluster of a runner on a machine of its own, and the runner."""
        runner = _find_entry(name, tuple(r for c in self.clusters for r in c.runners), "runner")
        return next(c for c in self.clusters if runner in c.runners), runner

    def broker_config(self, name: str) -> BrokerConfig:
        """Return the configuration of a broker's machine."""
        names, clusters = (tuple(one.name for one in entries) for entries in (self.brokers, self.clusters))
        joined = dict(self.joined)
        return BrokerConfig(
            name=name,
            number=names.index(name) + 1,
            brokers=names,
            clusters=clusters,
            timings=self.timings,
            retired=tuple(name for name in (*names, *clusters) if self.is_retired(name)),
            drained=self.drained,
            version=self.version,
            brokers_since=tuple(joined.get(broker, 0) for broker in names) if joined else (),
            clusters_since=tuple(joined.get(cluster, 0) for cluster in clusters) if joined else (),
        )

    def warden_config(self, name: str) -> WardenConfig:
        """Return the configuration of a warden's machine."""
        cluster = self.cluster(name)
        position = self.clusters.index(cluster)
        return WardenConfig(
            name=name,
            nodes=self._nodes_with_hosts(cluster),
            brokers=tuple(entry.name for entry in self.brokers),
            timings=self.timings,
            reserve=cluster.reserve,
            retired=tuple(entry.name for entry in self.brokers if entry.retired),
            first_port=GANG_PORT_FIRST + GANG_PORTS * (position % GANG_PORT_RANGES),
        )

    @staticmethod
    def _nodes_with_hosts(cluster: ClusterEntry) -> tuple[NodeConfig, ...]:
        """Return a cluster's nodes; one without an address of its own has that of its runner."""
        hosts = {cluster.own_runner: cluster.address.host}
        hosts |= {runner.name: runner.address.host for runner in cluster.runners}
        return tuple(
            [
                node if node.host else msgspec.structs.replace(node, host=hosts.get(node.runner, ""))
                for node in cluster.nodes
            ]
        )

    def runner_config(self, cluster: ClusterEntry, runner: str) -> RunnerConfig:
        """Return the configuration of a runner's machine."""
        nodes = tuple(number for number, node in enumerate(cluster.nodes) if node.runner == runner)
        return RunnerConfig(name=runner, warden=cluster.name, nodes=nodes, timings=self.timings)


Entry = TypeVar("Entry", BrokerEntry, ClusterEntry, RunnerEntry)


def _find_entry(name: str, entries: tuple[Entry, ...], kind: str) -> Entry:
    for entry in entries:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in entries) or "none"
    raise LeagueError(f"the league has no {kind} called {printable_name(name)!r}; there are: {known}")
