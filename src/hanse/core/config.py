"""Configuration of each machine: one frozen record per role, every field with its unit and consequence."""

from typing import Final

import msgspec

from hanse.model.constraints import Value
from hanse.model.hardware.devices import Device
from hanse.model.hardware.facts import HardwareFacts
from hanse.model.ids import MILLISECOND, SECOND
from hanse.model.resources import Resources

DRIFT_PERCENT: Final = 3
"""Bound of the error of a clock's rate; every wait for another machine's lease adds it."""

GANG_PORT_FIRST: Final = 20_000
"""First port of the first cluster's gangs. The ports of all clusters end below those that Linux gives to
outgoing connections (32768 and above)."""
GANG_PORTS: Final = 100
"""Ports of one cluster: gangs with the same host of rank 0 that can run at once without sharing one."""
GANG_PORT_RANGES: Final = 100
"""Clusters with ports of their own; further ones share them with others, as a rule on other hosts."""
LOCAL_HOST: Final = "127.0.0.1"
"""Host of a node that names none."""


LOCAL_RATE: Final = 400_000_000
"""Bytes a second that a task reads from its own cluster, if nothing is declared."""
REMOTE_RATE: Final = 125_000_000
"""Bytes a second that a task reads from another cluster, if nothing is declared."""


class Timings(msgspec.Struct, frozen=True):
    """Times of the protocol, in microseconds. All members of a league must have the same."""

    ack_delay: int = 200 * MILLISECOND
    """Time that a received message may wait for a message that carries its acknowledgement."""
    resend_after: int = 1 * SECOND
    """Time after which an unacknowledged message is repeated; doubles up to ``resend_max``."""
    resend_max: int = 8 * SECOND
    """Maximum time between two repetitions of an unacknowledged message."""
    beat: int = 1 * SECOND
    """Period of wardens' heartbeats and brokers' gossip."""
    runner_beat: int = 1 * SECOND
    """Period of runners' heartbeats."""
    cluster_lease: int = 30 * SECOND
    """Time for which a cluster runs movable tasks without a message from their broker."""
    runner_lease: int = 10 * SECOND
    """Time for which a node runs tasks without a message from its warden."""
    lease_grace: int = 1 * SECOND
    """Time that a grantor adds before it counts a lease as expired."""
    grant_lease: int = 2 * SECOND
    """Time for which granted room waits to be bound."""
    delta_linger: int = 50 * MILLISECOND
    """Time for which a warden collects changes before it sends them to the brokers."""
    started_linger: int = 500 * MILLISECOND
    """Time for which a warden collects starts before it reports them to a task's broker."""
    settle_linger: int = 500 * MILLISECOND
    """Time for which acknowledgements of ends wait for a message that carries them."""
    suspect_after: int = 5 * SECOND
    """Silence after which gossip suspects a broker and its standby starts a takeover."""
    start_deadline: int = 15 * SECOND
    """Time within which an accepted task must start; then it is withdrawn, and its cluster's standing
    falls."""
    conflict_window: int = 0
    """Time for which a broker collects competing grants before it keeps the best."""
    hold_patience: int = 60 * SECOND
    """Time for which a broker asks one warden to hold nodes for a gang before it asks another."""
    preempt_after: int = 1 * SECOND
    """Run time before which a task is not preempted."""


class NodeConfig(msgspec.Struct, frozen=True):
    """Node: its capacity, attributes and devices."""

    capacity: Resources
    attributes: tuple[tuple[str, Value], ...] = ()
    runner: str = ""
    """Name of the runner that serves it."""
    host: str = ""
    """Host name or address under which the tasks of gangs reach it; empty: this machine only."""
    devices: tuple[Device, ...] = ()
    """Devices that its runner assigns, as listed; no machine looks at them."""


class BrokerConfig(msgspec.Struct, frozen=True):
    """Configuration of a broker. ``number`` is unique in the league permanently: job numbers contain it."""

    name: str
    number: int
    brokers: tuple[str, ...]
    """All brokers of the league, including this one, in the same order everywhere."""
    clusters: tuple[str, ...]
    """All clusters; a warden's address is its cluster's name."""
    timings: Timings = Timings()
    retired: tuple[str, ...] = ()
    """Brokers and clusters that have left permanently: no machine waits for
    their replies. They keep their places in ``brokers`` and ``clusters``."""
    drained: tuple[str, ...] = ()
    """Clusters of ``retired`` that were drained when they left, and whose ends had all been acknowledged:
    nothing is unknown of them. The others may have vanished with attempts that nobody knows."""
    version: int = 0
    """Version of the league file."""
    brokers_since: tuple[int, ...] = ()
    """Version in which each broker joined; empty: all were there at first."""
    clusters_since: tuple[int, ...] = ()
    """Version in which each cluster joined. A broker that does not know it must not take its tasks over."""
    jobs_max: int = 100_000
    """Jobs that have not ended; further ones are rejected."""
    tasks_max: int = 4_000_000
    """Tasks of jobs that have not ended."""
    ended_max: int = 10_000
    """Ended jobs kept for questions and for idempotent submission, oldest dropped first."""
    lost_max: int = 50
    """Losses of a task through no fault of its own after which it counts as failed."""
    decisions: bool = True
    """True to record decisions."""
    slice_tasks: int = 2_048
    """Tasks of a cancelled job that one event ends; a job with more is ended by several events. About 3 ms of
    a broker's time, and as much for its read model and for its standby."""

    data_rates: tuple[tuple[int, ...], ...] = ()
    """Bytes a second that one task reads from a cluster (row) in another (column), in the order of
    ``clusters``; empty: not declared."""

    def rate_between(self, source: str, target: str) -> int:
        """Return the bytes a second that a task in the target cluster reads from the source."""
        if self.data_rates and source in self.clusters:
            return self.data_rates[self.clusters.index(source)][self.clusters.index(target)]
        return LOCAL_RATE if source == target else REMOTE_RATE

    @property
    def active_clusters(self) -> tuple[str, ...]:
        """Clusters that must take part in every unanimous decision."""
        if not self.retired:
            return self.clusters
        return tuple(name for name in self.clusters if name not in self.retired)


class WardenConfig(msgspec.Struct, frozen=True):
    """Configuration of a warden and its cluster."""

    name: str
    """Name of the cluster, which is also the warden's address."""
    nodes: tuple[NodeConfig, ...]
    brokers: tuple[str, ...]
    timings: Timings = Timings()
    reserve: int = 0
    """Number of nodes, from the last one backwards, that only latency work may use."""
    runs_max: int = 1_000_000
    """Attempts that run or have an unacknowledged end; further claims are refused as busy."""
    retired: tuple[str, ...] = ()
    """Brokers that have left permanently; they keep their places in ``brokers``."""
    first_port: int = GANG_PORT_FIRST
    """First of the ``GANG_PORTS`` ports that this warden gives to gangs."""

    @property
    def active_brokers(self) -> tuple[str, ...]:
        """Brokers that have not retired."""
        if not self.retired:
            return self.brokers
        return tuple(name for name in self.brokers if name not in self.retired)


class RunnerConfig(msgspec.Struct, frozen=True):
    """Configuration of a runner and the nodes it serves (positions in its cluster)."""

    name: str
    warden: str
    nodes: tuple[int, ...]
    timings: Timings = Timings()
    hardware: HardwareFacts | None = None
    """Hardware of its machine, which it reports with its session; None: tasks run elsewhere."""
