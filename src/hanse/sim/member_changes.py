"""Changes of members in a running league: brokers and clusters that join, and that retire.

Each change is a version of the league file. As in a live league a member applies a version by a restart,
each member at a time of its own (ADR 0038), so members of several versions run beside each other for a
while. A member that does not know a new member refuses its connections. A cluster retires when it is drained
and its warden has no attempt and no unsettled end; a broker retires when others have copies of its jobs and
none of its clients waits. Both retire for good. The agreement on a version is not simulated here: the HTTP
servers make it, and the tests of ``live.membership`` cover it.
"""

from collections.abc import Callable
from random import Random
from typing import Final, cast

import msgspec

from hanse.core.broker.broker import Broker
from hanse.core.config import WardenConfig
from hanse.core.warden.warden import Warden
from hanse.model.ids import MILLISECOND, SECOND
from hanse.sim.checkers import Oracle
from hanse.sim.clients import Clients
from hanse.sim.faults import Options
from hanse.sim.league import League, Members
from hanse.sim.process import Process

MEMBERSHIP: Final = 0x3E3B
"""Mask that makes these draws independent of all others, so that seeds without changes stay the same."""
SEEDS_RARE: Final = 4
"""One seed in this many has changes."""
TAKEN_APART_MAX: Final = 4 * SECOND
"""Longest time between a decision and the restart of a member; one that is down takes longer."""
DOWNTIME_MAX: Final = SECOND
LOOK_EVERY: Final = 200 * MILLISECOND
"""Time between two checks of whether a retiring member may leave."""


class Changes(msgspec.Struct, frozen=True):
    """Members that join and retire in a seed; empty names: none."""

    broker: str = ""
    """Additional broker, the last one."""
    cluster: WardenConfig | None = None
    """Additional cluster, with the nodes of another one, so that no work depends on this cluster."""
    joins: tuple[str, ...] = ()
    """Those of the two that join during the run."""
    retires: tuple[str, ...] = ()
    """Those of the two that retire."""


def draw_changes(seed: int, options: Options) -> Changes:
    """Draw the changes of a seed."""
    rng = Random(seed ^ MEMBERSHIP)
    if options.scenario == "calm" or rng.randrange(SEEDS_RARE):
        return Changes()
    broker = f"b{len(options.brokers) + 1}" if rng.random() < 0.7 else ""
    cluster = _twin(rng.choice(options.wardens), len(options.wardens) + 1) if rng.random() < 0.7 else None
    names = [name for name in (broker, cluster.name if cluster is not None else "") if name]
    joins = tuple(name for name in names if rng.random() < 0.7)
    retires = tuple(name for name in names if name not in joins or rng.random() < 0.5)
    return Changes(broker, cluster, joins, retires)


def _twin(model: WardenConfig, number: int) -> WardenConfig:
    """Return another cluster with the same nodes and with runners of its own."""
    name = f"c{number}"
    nodes = tuple(
        msgspec.structs.replace(node, runner=name + node.runner.removeprefix(model.name))
        for node in model.nodes
    )
    return msgspec.structs.replace(model, name=name, nodes=nodes)


class Membership:
    """Controller that makes the changes of one seed."""

    def __init__(
        self, league: League, clients: Clients, oracle: Oracle, changes: Changes, seed: int, safety: int,
        tell: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._league = league
        self._world = league.world
        self._clients = clients
        self._oracle = oracle
        self._rng = rng = Random(seed ^ MEMBERSHIP)
        self._safety = safety
        self._tell = tell
        self.members = league.design.members()
        """Newest version."""
        self._taken: dict[str, Members] = {process.name: self.members for process in league.journalled}
        """Version that each broker and warden starts with."""
        for name in changes.joins:
            self._refuse(name)
            self._world.at(rng.randrange(safety * 3 // 4), self._join, name)
        for name in changes.retires:
            self._world.at(rng.randrange(safety // 2, safety), self._retire, name)

    def end(self) -> None:
        """Apply the newest version to every member, after the safety phase."""
        for process in self._league.journalled:
            if self._taken[process.name] is not self.members:
                process.crash()
                self._take(process)

    # --- joining --------------------------------------------------------------------------------------------

    def _refuse(self, name: str) -> None:
        """Cut the links from a new member to members that do not know it."""
        network = self._league.network
        strangers = self._taken  # runners know their warden from the beginning
        network.cut([link for link in network.links if link.source == name and link.target in strangers])

    def _join(self, name: str) -> None:
        now, number = self.members, self.members.version + 1
        brokers, clusters = now.brokers, now.clusters
        if name in self._league.brokers:
            brokers = (*brokers, name)
        else:
            clusters = (*clusters, name)
        since = (*now.since, (name, number))
        self._decide(Members(brokers, clusters, now.retired, number, since), f"{name} joins")
        for process in self._league.host_of(name):
            process.is_member = True
            if process.name in self._taken:
                self._take(process)
            process.restart()

    # --- retiring -------------------------------------------------------------------------------------------

    def _retire(self, name: str) -> None:
        """Retire a member if it may leave; else drain it and check again later."""
        first, *runners = self._league.host_of(name)
        if self._world.now >= self._safety:
            return
        if not first.is_member or not first.up or not self._is_idle(name, first):
            if first.is_member and name in self._league.wardens:
                first.drain(((), True, 0))
            self._world.at(self._world.now + LOOK_EVERY, self._retire, name)
            return
        for process in (first, *runners):
            process.crash()
            process.is_member = False
        if name in self._league.brokers:
            self._oracle.retired.append(name)
        else:
            self._oracle.left.append(name)
        now = self.members
        later = now._replace(retired=(*now.retired, name), version=now.version + 1)
        self._decide(later, f"{name} retires")

    def _is_idle(self, name: str, process: Process) -> bool:
        """True if nobody needs the member any more."""
        if name in self._league.wardens:
            warden = cast(Warden, process.machine)
            is_drained = all(drains for _, drains, _ in warden.states())
            is_idle = is_drained and not warden.attempts and not warden.attempt_tracker.unacked_ends
            return is_idle and not process.unsafe and self._is_dispensable(name)
        if cast(Broker, process.machine).count_unreplicated():
            return False
        return all(
            2 * plan.number in self._clients.replied for plan in self._clients.plans if plan.broker == name
        )

    def _is_dispensable(self, name: str) -> bool:
        """True if other wardens know the standbys that this warden knows; else an older standby could take
        over."""
        machines = {
            other: cast(Warden, process.machine)
            for other, process in self._league.wardens.items()
            if process.up and not process.unsafe
        }
        terms = machines.pop(name).shards()
        others = [machine.shards() for machine in machines.values()]
        return all(any(other.get(shard, 0) >= term for other in others) for shard, term in terms.items())

    # --- versions -------------------------------------------------------------------------------------------

    def _decide(self, members: Members, what: str) -> None:
        """Publish a new version and schedule the restart of every member."""
        self._tell("the league", f"changes: {what}")
        self.members = members
        for process in self._league.journalled:
            if process.is_member:
                later = self._world.now + self._rng.randint(0, TAKEN_APART_MAX)
                self._world.at(later, self._start_again, process)

    def _start_again(self, process: Process) -> None:
        """Restart a member with the newest version, unless it has that version or is down."""
        if self._taken[process.name] is self.members or not process.is_member:
            return
        if process.up:
            process.crash(self._rng.randint(0, len(process.unsafe)))
            self._world.at(self._world.now + self._rng.randint(MILLISECOND, DOWNTIME_MAX), process.restart)
        self._take(process)

    def _take(self, process: Process) -> None:
        """Set the newest version for a member's next start, and let it hear that version's new members."""
        before, self._taken[process.name] = self._taken[process.name], self.members
        process.reconfigure(self._league.maker(process.name, self.members))
        network, known = self._league.network, (*before.brokers, *before.clusters)
        newcomers = [name for name in (*self.members.brokers, *self.members.clusters) if name not in known]
        network.mend(
            [link for link in network.links if link.source in newcomers and link.target == process.name]
        )
