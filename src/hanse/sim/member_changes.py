"""Changes of members in a running league: brokers and clusters that join, and that retire.

Each change is a version of the league file. As in a live league a member applies a version by a restart,
each member at a time of its own (ADR 0038), so members of several versions run beside each other for a
while. A member that does not know a new member refuses its connections. A cluster retires when it is drained
and its warden has no attempt and no unsettled end; a broker retires when others have copies of its jobs and
none of its clients waits. Both retire for good. A broker may also be retired by force in the middle of a
takeover, if its own jobs have copies elsewhere. The agreement on a version is not simulated here: the HTTP
servers make it, and the tests of ``live.membership`` cover it.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final, cast

import msgspec

from hanse.core.broker.broker import Broker
from hanse.core.config import WardenConfig
from hanse.core.warden.warden import Warden
from hanse.model.ids import MILLISECOND, SECOND, job_of
from hanse.model.messages import AckEnds, Claim, OwnershipTransferred, SequencedMessage
from hanse.sim.checkers.oracle import Oracle
from hanse.sim.clients import Clients
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.league import LeagueVersion, SimulatedLeague
from hanse.sim.seed_options import SeedOptions

MEMBERSHIP_SEED_MASK: Final = 0x3E3B
"""Mask that makes these draws independent of all others, so that seeds without changes stay the same."""
CHANGES_EVERY: Final = 4
"""One seed in this many has changes."""
ABANDONED_SEED_MASK: Final = 0xABA2
"""Mask that makes the draws about abandoned takeovers independent of all others."""
ABANDONED_EVERY: Final = 2
"""In one seed in this many a broker is retired in the middle of a takeover, if there is an occasion."""
RESTART_SPREAD_MAX: Final = 4 * SECOND
"""Longest time between a decision and the restart of a member; one that is down takes longer."""
DOWNTIME_MAX: Final = SECOND
RETIREMENT_CHECK_INTERVAL: Final = 200 * MILLISECOND
"""Time between two checks of whether a retiring member may leave."""
TAKEOVER_CHECK_INTERVAL: Final = 10 * MILLISECOND
"""Time between two checks of whether a takeover can be abandoned."""


class MemberChanges(msgspec.Struct, frozen=True):
    """Members that join and retire in a seed; empty names: none."""

    broker: str = ""
    """Additional broker, the last one."""
    cluster: WardenConfig | None = None
    """Additional cluster, with the nodes of another one, so that no work depends on this cluster."""
    joins: tuple[str, ...] = ()
    """Those of the two that join during the run."""
    retires: tuple[str, ...] = ()
    """Those of the two that retire."""
    keeps_record: bool = True
    """True if the league file says that a retired cluster was drained. A file of an older release does
    not."""
    abandons: bool = False
    """True if a broker is retired by force in the middle of a takeover."""
    awaits_all: bool = False
    """True if that happens only after every warden has agreed to the takeover."""


def draw_changes(seed: int, options: SeedOptions) -> MemberChanges:
    """Draw the changes of a seed."""
    rng, forced = Random(seed ^ MEMBERSHIP_SEED_MASK), Random(seed ^ ABANDONED_SEED_MASK)
    if options.scenario == "calm":
        return MemberChanges()
    abandons, awaits_all = not forced.randrange(ABANDONED_EVERY), forced.random() < 0.7
    if rng.randrange(CHANGES_EVERY):
        return MemberChanges(abandons=abandons, awaits_all=awaits_all)
    broker = f"b{len(options.brokers) + 1}" if rng.random() < 0.7 else ""
    cluster = (
        _copy_cluster(rng.choice(options.wardens), len(options.wardens) + 1) if rng.random() < 0.7 else None
    )
    names = [name for name in (broker, cluster.name if cluster is not None else "") if name]
    joins = tuple(name for name in names if rng.random() < 0.7)
    retires = tuple(name for name in names if name not in joins or rng.random() < 0.5)
    keeps_record = abandons or rng.random() < 0.7  # else nobody could take back what was abandoned
    return MemberChanges(broker, cluster, joins, retires, keeps_record, abandons, awaits_all)


def _copy_cluster(model: WardenConfig, number: int) -> WardenConfig:
    """Return another cluster with the same nodes and with runners of its own."""
    name = f"c{number}"
    nodes = tuple(
        msgspec.structs.replace(node, runner=name + node.runner.removeprefix(model.name))
        for node in model.nodes
    )
    return msgspec.structs.replace(model, name=name, nodes=nodes)


class MemberChanger:
    """Controller that makes the changes of one seed."""

    def __init__(
        self, league: SimulatedLeague, clients: Clients, oracle: Oracle, changes: MemberChanges, seed: int,
        safety: int,
        add_to_story: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        self._league = league
        self._world = league.world
        self._clients = clients
        self._oracle = oracle
        self._rng = rng = Random(seed ^ MEMBERSHIP_SEED_MASK)
        self._keeps_record = changes.keeps_record
        self._safety = safety
        self._add_to_story = add_to_story
        self.version = league.design.first_version()
        """Newest version."""
        self._applied_versions: dict[str, LeagueVersion] = {
            process.name: self.version for process in league.journalled_processes
        }
        """Version that each broker and warden starts with."""
        for name in changes.joins:
            self._cut_newcomer(name)
            self._world.call_at(rng.randrange(safety * 3 // 4), self._join, name)
        for name in changes.retires:
            self._world.call_at(rng.randrange(safety // 2, safety), self._retire, name)
        if changes.abandons:
            self._world.call_at(0, self._abandon_takeover, changes.awaits_all)

    def finish(self) -> None:
        """Apply the newest version to every member, after the safety phase."""
        for process in self._league.journalled_processes:
            if self._applied_versions[process.name] is not self.version:
                process.crash()
                self._apply_version(process)

    # --- joining --------------------------------------------------------------------------------------------

    def _cut_newcomer(self, name: str) -> None:
        """Cut the links from a new member to members that do not know it."""
        network = self._league.network
        strangers = self._applied_versions  # runners know their warden from the beginning
        network.cut([link for link in network.links if link.source == name and link.target in strangers])

    def _join(self, name: str) -> None:
        version, version_number = self.version, self.version.version + 1
        brokers, clusters = version.brokers, version.clusters
        if name in self._league.brokers:
            brokers = (*brokers, name)
        else:
            clusters = (*clusters, name)
        since = (*version.since, (name, version_number))
        self._publish_version(
            version._replace(brokers=brokers, clusters=clusters, version=version_number, since=since),
            f"{name} joins",
        )
        member = self._league.member(name)
        for process in self._league.processes_of(name):
            process.is_member = True
            if process is member:
                self._apply_version(member)
            process.restart()

    # --- retiring -------------------------------------------------------------------------------------------

    def _retire(self, name: str) -> None:
        """Retire a member if it may leave; else drain it and check again later."""
        member = self._league.member(name)
        if self._world.now >= self._safety:
            return
        if not member.is_member or not member.is_up or not self._is_idle(name, member):
            if member.is_member and name in self._league.wardens:
                member.drain(((), True, 0))
            self._world.call_at(self._world.now + RETIREMENT_CHECK_INTERVAL, self._retire, name)
            return
        self._remove(name, "retires")

    def _remove(self, name: str, what: str) -> None:
        """Publish a version in which a member has retired, and end its processes."""
        for process in self._league.processes_of(name):
            process.crash()
            process.is_member = False
        if name in self._league.brokers:
            self._oracle.retired_brokers.append(name)
        version = self.version
        next_version = version._replace(retired=(*version.retired, name), version=version.version + 1)
        if name in self._league.wardens and self._keeps_record:
            next_version = next_version._replace(drained=(*version.drained, name))
        elif name in self._league.wardens:
            self._oracle.doubtful_clusters.append(name)
        self._publish_version(next_version, f"{name} {what}")

    def _abandon_takeover(self, awaits_all: bool) -> None:
        """Retire a broker by force that is taking a shard over; if none is, check again later."""
        if self._world.now >= self._safety:
            return
        for name, process in self._league.brokers.items():
            if (
                _is_taking_over(process.machine)  # asked first: it is seldom true
                and process.is_up
                and process.is_member
                and self._is_abandonable(name, process, awaits_all)
            ):
                self._remove(name, "is retired by force in the middle of a takeover")
                return
        self._world.call_at(self._world.now + TAKEOVER_CHECK_INTERVAL, self._abandon_takeover, awaits_all)

    def _is_abandonable(self, name: str, process: JournalledProcess, awaits_all: bool) -> bool:
        """True if a broker is taking a shard over, and nothing else would be lost with it: it has copies of
        its own jobs elsewhere, and none of a retired owner; none of its clients waits; every former owner has
        heard of its earlier takeovers; and no warden waits for the acknowledgement of an end by it alone."""
        broker = cast(Broker, process.machine)
        copies = broker.standby_shards()
        takeovers = [shard for shard, copy in copies.items() if copy.is_taking_over]
        if any(copy.owner in self.version.retired for copy in copies.values()):
            return False  # nobody else has these jobs
        if broker.count_exposed() or process.uncommitted or self._has_clients(name):
            return False
        if not all(shard.startswith(f"{name}#") for shard in broker.shards()[0]):
            return False  # former owners may not have heard of an earlier takeover
        unacked = [message for link in broker.links.links.values() for message in link.unacked.values()]
        if any(_is_irreplaceable(message) for message in unacked):
            return False
        wardens = [
            cast(Warden, warden.machine) for warden in self._league.wardens.values() if warden.is_member
        ]
        if any(_has_foregone_attempts(warden, broker) for warden in wardens):
            return False
        return not awaits_all or any(
            all(warden.attempt_tracker.ownership.find_owner(shard) == name for warden in wardens)
            for shard in takeovers
        )

    def _has_clients(self, name: str) -> bool:
        """True if clients of a broker wait for replies."""
        plans = [plan for plan in self._clients.plans if plan.broker == name]
        return any(2 * plan.number not in self._clients.replies for plan in plans)

    def _is_idle(self, name: str, process: JournalledProcess) -> bool:
        """True if nobody needs the member any more."""
        if name in self._league.wardens:
            warden = cast(Warden, process.machine)
            is_drained = all(drains for _, drains, _ in warden.states())
            is_idle = is_drained and not warden.attempt_count and not warden.attempt_tracker.unacked_ends
            return is_idle and not process.uncommitted and self._is_dispensable(name)
        return not cast(Broker, process.machine).count_unreplicated() and not self._has_clients(name)

    def _is_dispensable(self, name: str) -> bool:
        """True if other wardens know the standbys that this warden knows; else an older standby could take
        over."""
        machines = {
            other: cast(Warden, process.machine)
            for other, process in self._league.wardens.items()
            if process.is_up and not process.uncommitted
        }
        terms = machines.pop(name).shards()
        others = [machine.shards() for machine in machines.values()]
        return all(any(other.get(shard, 0) >= term for other in others) for shard, term in terms.items())

    # --- versions -------------------------------------------------------------------------------------------

    def _publish_version(self, version: LeagueVersion, what: str) -> None:
        """Publish a new version and schedule the restart of every member."""
        self._add_to_story("the league", f"changes: {what}")
        self.version = version
        for process in self._league.journalled_processes:
            if process.is_member:
                restart_at = self._world.now + self._rng.randint(0, RESTART_SPREAD_MAX)
                self._world.call_at(restart_at, self._restart, process)

    def _restart(self, process: JournalledProcess) -> None:
        """Restart a member with the newest version, unless it has that version or is down."""
        if self._applied_versions[process.name] is self.version or not process.is_member:
            return
        if process.is_up:
            process.crash(self._rng.randint(0, len(process.uncommitted)))
            self._world.call_at(
                self._world.now + self._rng.randint(MILLISECOND, DOWNTIME_MAX), process.restart
            )
        self._apply_version(process)

    def _apply_version(self, process: JournalledProcess) -> None:
        """Set the newest version for a member's next start, and let it hear that version's new members."""
        previous, self._applied_versions[process.name] = self._applied_versions[process.name], self.version
        process.use_factory(self._league.machine_factory(process.name, self.version))
        network, known = self._league.network, (*previous.brokers, *previous.clusters)
        newcomers = [name for name in (*self.version.brokers, *self.version.clusters) if name not in known]
        network.end_cut(
            [link for link in network.links if link.source in newcomers and link.target == process.name]
        )


def _is_taking_over(broker: Any) -> bool:
    """True if a takeover by this broker is under way. Asked very often."""
    for copy in broker.standby_shards().values():  # noqa: SIM110  any() takes twice as long
        if copy.is_taking_over:
            return True
    return False


def _is_irreplaceable(message: SequencedMessage) -> bool:
    """True for a message of which nobody else can tell: that a shard was taken over, without which its former
    owner takes its jobs for orphaned (ADR 0039), or that ends are safe, without which a warden keeps them."""
    return isinstance(message, OwnershipTransferred | AckEnds) or (
        isinstance(message, Claim) and bool(message.acked_ends)
    )


def _has_foregone_attempts(warden: Warden, broker: Broker) -> bool:
    """True if a warden has an attempt, or the end of one, of a job that has ended at this broker: nobody has
    a copy of the job, so nobody will take it over and acknowledge the end."""
    shards, tracker = broker.shards()[0], warden.attempt_tracker
    kept = [(shard, end.task) for shard, end in tracker.unacked_ends.by_attempt.values()]
    kept += [(run.template.shard, run.task) for run in tracker.ledger.attempts.values()]
    return any(shard in shards and not broker.is_owner_of(job_of(task)) for shard, task in kept)
