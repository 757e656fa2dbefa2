"""The league as its members know it: who they are, where they listen, and what each cluster has.

``live.config.league_file`` reads it.
"""

from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from hanse.core.config import BrokerConfig, NodeConfig, RunnerConfig, Timings, WardenConfig
from hanse.live.backends.process.task_users import UserRange
from hanse.live.backends.slurm.settings import SlurmSettings
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
"""The protocol's times on a real network: people wait for answers, so little is held back."""


class LeagueError(Exception):
    """A league file that cannot be used, with every problem found."""


class Address(msgspec.Struct, frozen=True):
    """Where somebody listens; port 0: not chosen yet."""

    host: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BackendKind(StrEnum):
    """What runs a cluster's tasks."""

    PROCESS = "process"
    NULL = "null"
    SLURM = "slurm"


class BackendEntry(msgspec.Struct, frozen=True):
    """A cluster's backend and its settings."""

    kind: BackendKind = BackendKind.PROCESS
    sandbox: str = "auto"
    """What is around each task: ``none``, ``namespace``, ``bwrap`` or ``auto``:
    ``live.backends.process.sandbox``."""
    user: str = ""
    """Who runs the tasks when the daemon is root; empty: of ``process`` each job as a user id of its own, of
    ``slurm`` nobody."""
    users: UserRange = UserRange()
    """Where the user ids of jobs come from."""
    memory_default: int = 0
    """Bytes of memory that a task may use which asked for none; 0: a share of its node's, as of its CPUs."""
    output: int = 64 << 20
    """Bytes kept of each output stream of a task."""
    disk: int = 0
    """Bytes that the files of one task may take in its work directory and as output; 0: a quarter of the
    disk."""
    files: int = 0
    """How many files these may be; 0: a quarter of the disk's inodes, ``disk_watch.FILES_MAX`` at most."""
    directory: str = ""
    """Where the cluster's runners keep their tasks, each below its own name; empty: in the member's own
    directory, on the disk of its journal."""
    limits: str = "auto"
    """How limits are enforced: auto, v2, v1 or rlimit."""
    slurm: SlurmSettings = SlurmSettings()
    """Of a cluster over Slurm alone."""


class Policies(msgspec.Struct, frozen=True):
    """The brokers' policies, by name."""

    order: str = "fewest-remaining"
    placer: str = "best-fit"
    rank: str = "best-standing"
    sizer: str = "least"


class BrokerEntry(msgspec.Struct, frozen=True):
    """A broker of the league."""

    name: str
    address: Address
    door: Address
    retired: bool = False
    """Whether it has left; its place is kept, because members are numbered by their places."""


class RunnerEntry(msgspec.Struct, frozen=True):
    """A runner on a machine of its own."""

    name: str
    address: Address
    door: Address


class ClusterEntry(msgspec.Struct, frozen=True):
    """A cluster of the league."""

    name: str
    address: Address
    door: Address
    nodes: tuple[NodeConfig, ...]
    backend: BackendEntry = BackendEntry()
    reserve: int = 0
    runners: tuple[RunnerEntry, ...] = ()
    retired: bool = False
    """Whether it has left; its place is kept."""

    @property
    def own_runner(self) -> str:
        """The runner inside the warden's daemon."""
        return f"{self.name}/runner"


class League(msgspec.Struct, frozen=True):
    """The whole league file."""

    name: str
    brokers: tuple[BrokerEntry, ...]
    clusters: tuple[ClusterEntry, ...]
    timings: Timings = LIVE_TIMINGS
    policy: Policies = Policies()
    version: int = 0
    """How often the file has been changed while the league ran; see ``live.membership``."""
    joined: tuple[tuple[str, int], ...] = ()
    """The version in which each broker and cluster that was not there at first has joined."""

    @property
    def serving_brokers(self) -> tuple[BrokerEntry, ...]:
        """Those that have not retired."""
        return tuple(entry for entry in self.brokers if not entry.retired)

    @property
    def serving_clusters(self) -> tuple[ClusterEntry, ...]:
        """Those that have not retired."""
        return tuple(entry for entry in self.clusters if not entry.retired)

    def is_retired(self, name: str) -> bool:
        """Whether a broker or a cluster, with its runners, has left."""
        gone = [entry.name for entry in self.brokers if entry.retired]
        for cluster in self.clusters:
            if cluster.retired:
                gone += [cluster.name, *(runner.name for runner in cluster.runners)]
        return name in gone

    def members(self) -> list[str]:
        """Every member's name: brokers, clusters (their wardens), runners on machines of their own."""
        return [
            *(entry.name for entry in self.brokers),
            *(entry.name for entry in self.clusters),
            *(runner.name for entry in self.clusters for runner in entry.runners),
        ]

    def hosts_of(self, name: str) -> tuple[str, ...]:
        """Where a member listens: its certificate names these hosts, for programs that check them."""
        runners = [runner for entry in self.clusters for runner in entry.runners]
        entries: list[BrokerEntry | ClusterEntry | RunnerEntry] = [*self.brokers, *self.clusters, *runners]
        places = [(entry.door.host, entry.address.host) for entry in entries if entry.name == name]
        return tuple(dict.fromkeys(host for hosts in places for host in hosts))

    def broker(self, name: str) -> BrokerEntry:
        """The broker of this name; a sentence for who asked for another."""
        return _named(name, self.brokers, "broker")

    def cluster(self, name: str) -> ClusterEntry:
        """The cluster of this name."""
        return _named(name, self.clusters, "cluster")

    def cluster_of_runner(self, name: str) -> tuple[ClusterEntry, RunnerEntry]:
        """The runner of this name on a machine of its own, and its cluster."""
        runner = _named(name, tuple(r for c in self.clusters for r in c.runners), "runner")
        return next(c for c in self.clusters if runner in c.runners), runner

    def broker_config(self, name: str) -> BrokerConfig:
        """What the broker's machine is told."""
        names, clusters = (tuple(one.name for one in entries) for entries in (self.brokers, self.clusters))
        joined = dict(self.joined)
        return BrokerConfig(
            name=name,
            number=names.index(name) + 1,
            brokers=names,
            clusters=clusters,
            timings=self.timings,
            retired=tuple(name for name in (*names, *clusters) if self.is_retired(name)),
            version=self.version,
            brokers_since=tuple(joined.get(broker, 0) for broker in names) if joined else (),
            clusters_since=tuple(joined.get(cluster, 0) for cluster in clusters) if joined else (),
        )

    def warden_config(self, name: str) -> WardenConfig:
        """What the warden's machine is told."""
        cluster = self.cluster(name)
        return WardenConfig(
            name=name,
            nodes=cluster.nodes,
            brokers=tuple(entry.name for entry in self.brokers),
            timings=self.timings,
            reserve=cluster.reserve,
            retired=tuple(entry.name for entry in self.brokers if entry.retired),
        )

    def runner_config(self, cluster: ClusterEntry, runner: str) -> RunnerConfig:
        """What a runner's machine is told."""
        nodes = tuple(number for number, node in enumerate(cluster.nodes) if node.runner == runner)
        return RunnerConfig(name=runner, warden=cluster.name, nodes=nodes, timings=self.timings)


Entry = TypeVar("Entry", BrokerEntry, ClusterEntry, RunnerEntry)


def _named(name: str, entries: tuple[Entry, ...], kind: str) -> Entry:
    for entry in entries:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in entries) or "none"
    raise LeagueError(f"the league has no {kind} called {printable_name(name)!r}; there are: {known}")
