"""What each machine is told at its making. One frozen record per role; every field with unit and
consequence."""

from typing import Final

import msgspec

from hanse.model.constraints import Value
from hanse.model.ids import MILLISECOND, SECOND
from hanse.model.resources import Resources

DRIFT_PERCENT: Final = 3
"""How much faster or slower than true time a clock may run; every wait for somebody else's lease adds it."""


class Timings(msgspec.Struct, frozen=True):
    """The times of the protocol, in microseconds. All members of a league must be given the same."""

    ack_delay: int = 200 * MILLISECOND
    """How long a received message may wait for something to carry its acknowledgement."""
    resend_after: int = 1 * SECOND
    """When to repeat an unacknowledged message; doubles up to ``resend_max``."""
    resend_max: int = 8 * SECOND
    """The longest time between two repetitions of an unacknowledged message."""
    beat: int = 1 * SECOND
    """Period of wardens' beats and brokers' gossip."""
    runner_beat: int = 1 * SECOND
    """Period of runners' beats."""
    cluster_lease: int = 30 * SECOND
    """How long a cluster runs movable tasks without a word from their broker."""
    runner_lease: int = 10 * SECOND
    """How long a node runs tasks without a word from its warden."""
    lease_grace: int = 1 * SECOND
    """What a grantor adds before it counts a lease as over."""
    grant_lease: int = 2 * SECOND
    """How long granted room waits to be bound."""
    delta_linger: int = 50 * MILLISECOND
    """How long a warden collects changes before it tells the brokers."""
    started_linger: int = 500 * MILLISECOND
    """How long a warden collects starts before it tells a task's broker."""
    settle_linger: int = 500 * MILLISECOND
    """How long word of what may be forgotten waits for a message that carries it."""
    suspect_after: int = 5 * SECOND
    """Silence after which gossip suspects a broker and its standby adopts."""
    start_deadline: int = 15 * SECOND
    """An accepted task that has not started by then is withdrawn, and its cluster's standing falls."""
    conflict_window: int = 0
    """How long a broker collects competing grants before it keeps the best."""
    hold_patience: int = 60 * SECOND
    """How long a broker asks one warden to keep room back for a gang before it asks another."""
    preempt_after: int = 1 * SECOND
    """A task that has run for less than this is not preempted."""


class NodeConfig(msgspec.Struct, frozen=True):
    """A node: what it has and what is true of it."""

    capacity: Resources
    attributes: tuple[tuple[str, Value], ...] = ()
    runner: str = ""
    """The runner that serves it."""


class BrokerConfig(msgspec.Struct, frozen=True):
    """A broker. ``number`` is unique in the league for ever: job numbers carry it."""

    name: str
    number: int
    brokers: tuple[str, ...]
    """All brokers of the league, this one included, in the same order everywhere."""
    clusters: tuple[str, ...]
    """All clusters; a warden's address is its cluster's name."""
    timings: Timings = Timings()
    retired: tuple[str, ...] = ()
    """Brokers and clusters that have left for good, the latter with nothing running: nobody waits for their
    word. They keep their places among ``brokers`` and ``clusters``."""
    version: int = 0
    """The version of the league file that says all this."""
    brokers_since: tuple[int, ...] = ()
    """The version in which each broker joined; empty: all were there at first."""
    clusters_since: tuple[int, ...] = ()
    """The same of each cluster. Who does not know a cluster must not take over what may run there."""
    jobs_max: int = 100_000
    """Jobs not yet ended; further ones are rejected."""
    tasks_max: int = 4_000_000
    """Tasks of jobs not yet ended."""
    ended_max: int = 10_000
    """Ended jobs kept for questions and for idempotent submission, oldest dropped first."""
    lost_max: int = 50
    """How often a task may be lost through no fault of its own before it counts as failed."""
    decisions: bool = True
    """Whether to record decisions."""
    slice_tasks: int = 2_048
    """Tasks of a cancelled job that one event ends; a job with more is ended by several, one after another.
    About 3 ms of a broker's time, and as much for its read model and its standby each."""

    @property
    def active_clusters(self) -> tuple[str, ...]:
        """The clusters whose wardens must agree to what all have to agree to."""
        if not self.retired:
            return self.clusters
        return tuple(name for name in self.clusters if name not in self.retired)


class WardenConfig(msgspec.Struct, frozen=True):
    """A warden and its cluster."""

    name: str
    """The cluster's name, which is also the warden's address."""
    nodes: tuple[NodeConfig, ...]
    brokers: tuple[str, ...]
    timings: Timings = Timings()
    reserve: int = 0
    """How many nodes, from the last one backwards, only latency work may use."""
    runs_max: int = 1_000_000
    """Attempts not yet settled; further claims are refused as busy."""
    retired: tuple[str, ...] = ()
    """Brokers that have left for good; they keep their places among ``brokers``."""

    @property
    def active_brokers(self) -> tuple[str, ...]:
        """The brokers that have not retired."""
        if not self.retired:
            return self.brokers
        return tuple(name for name in self.brokers if name not in self.retired)


class RunnerConfig(msgspec.Struct, frozen=True):
    """A runner and the nodes it serves (positions in its cluster)."""

    name: str
    warden: str
    nodes: tuple[int, ...]
    timings: Timings = Timings()
