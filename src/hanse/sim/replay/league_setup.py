"""Set-up of Hanse's own machines as a policy of a replay: one league, made from the settings of a run.

Clusters are equal parts of the nodes, each with one warden and one runner; a node holds one task. Without
faults every broker is alone in its list of brokers, so that its shard has no standby: nothing is lost in such
a run, and the other policies keep no second copy either. With faults the brokers know each other and every
shard has a standby.

Times of the protocol without faults are long, because no failure needs a beat, a lease or a repeated message.
The placement of tasks works as in a live league: claims and substitutes, demand, grants, binds and releases.
A warden's deltas wait for a millisecond (or ``heartbeat_us``, if that is less); in a live league for five.
"""

from itertools import pairwise
from typing import Final

import msgspec

from hanse.core.broker.broker import Broker
from hanse.core.config import BrokerConfig, NodeConfig, RunnerConfig, Timings, WardenConfig
from hanse.core.machine import Machine
from hanse.core.messaging.link import WINDOW_MAX
from hanse.core.runner.runner import Runner
from hanse.core.warden.warden import Warden
from hanse.model.ids import BROKER_NUMBER_MAX, MILLISECOND, SECOND, TASKS_PER_JOB_MAX
from hanse.model.job import PRIORITY_MAX, JobClass, JobSpec, TaskGroup
from hanse.model.messages import (
    Ack,
    Claim,
    ClaimReply,
    ClusterDelta,
    Envelope,
    Gossip,
    HeartbeatReply,
    RunnerHeartbeat,
    RunnerLease,
    TaskUpdates,
    WardenHeartbeat,
)
from hanse.model.resources import Resources
from hanse.policy.cluster_rankers import RotatingRanker
from hanse.policy.interface import QueueOrder
from hanse.policy.placers import Random
from hanse.policy.queue_orders import PriorityWithAgeing
from hanse.policy.sizers import LeastSizer
from hanse.registry import NODE_RANKERS, QUEUE_ORDERS
from hanse.sim.baselines.task_level.job_ranks import is_short
from hanse.sim.replay.queue_order import queue_order_of
from hanse.sim.replay.run_records import ReplayError, ReplayOutcome, ReplaySettings, ReplayWorkload

SLOT: Final = Resources(cpu=1_000)
"""Capacity of a node and request of a task."""
CLUSTER_NODES_MAX: Final = WINDOW_MAX - WINDOW_MAX // 64
"""Largest number of nodes in a cluster. If all its tasks end at one moment, one link has so many messages in
transit."""
BEAT: Final = 600 * SECOND
"""Period of beats in a run without faults."""
BEATS_BEFORE: Final = 2
"""Beats between the start of the machines and the first arrival: the second one opens every shard."""
LEAD_MESSAGES: Final = 20
"""Additional message delays before the first arrival, for slow networks with short beats."""
DELTA_LINGER_MAX: Final = 1 * MILLISECOND
"""Longest delay of a warden's deltas in a run without faults, unless the heartbeat is shorter: a round trip
of the usual network. Brokers that hear later claim nodes that others have taken."""
PERIODIC: Final = (Ack, WardenHeartbeat, HeartbeatReply, ClusterDelta, Gossip, RunnerHeartbeat, RunnerLease)
"""Messages that depend on time and not on tasks; all others are counted per task."""


class ReplayLeague(msgspec.Struct, frozen=True):
    """League of one run."""

    brokers: tuple[str, ...]
    wardens: tuple[WardenConfig, ...]
    runners: tuple[RunnerConfig, ...]
    first_node: dict[str, int]
    """Runner -> number of its first node in the whole league."""
    timings: Timings
    lead: int
    """Microseconds that the machines run before the first arrival."""


def find_objection(settings: ReplaySettings) -> str:
    """Return the reason why the machines cannot run with these settings; empty if they can."""
    if settings.brokers > BROKER_NUMBER_MAX:
        return f"hanse has at most {BROKER_NUMBER_MAX} brokers"
    most = -(-settings.nodes // settings.clusters)
    if most > CLUSTER_NODES_MAX:
        least = -(-settings.nodes // CLUSTER_NODES_MAX)
        return (
            f"hanse has at most {CLUSTER_NODES_MAX} nodes in a cluster: use --clusters {least} or more for"
            f" {settings.nodes} nodes"
        )
    return ""


def check_workload(workload: ReplayWorkload) -> None:
    """Refuse a workload with jobs that a broker would reject."""
    largest = max((past - first for first, past in pairwise(workload.offset)), default=0)
    if largest > TASKS_PER_JOB_MAX:
        raise ReplayError(
            f"{workload.name} has a job of {largest} tasks; hanse takes at most {TASKS_PER_JOB_MAX}"
        )


def protocol_timings(settings: ReplaySettings, faults: bool, reports_starts: bool) -> Timings:
    """Return the times of the protocol. With faults they are a live league's, scaled for slower beats.

    ``reports_starts``: True if runners report starts, so that a broker may expect a start in time.
    """
    if faults:
        beat = settings.heartbeat_us
        usual = Timings()
        return msgspec.structs.replace(
            usual,
            beat=beat,
            runner_beat=beat,
            cluster_lease=max(usual.cluster_lease, 6 * beat),
            runner_lease=max(usual.runner_lease, 3 * beat),
            suspect_after=max(usual.suspect_after, 3 * beat),
            resend_after=max(usual.resend_after, 8 * settings.delay_us),
            resend_max=max(usual.resend_max, 8 * settings.delay_us),
            grant_lease=max(usual.grant_lease, 8 * settings.delay_us),
        )
    beat = max(BEAT, 100 * settings.delay_us)
    return Timings(
        ack_delay=beat // 10,
        resend_after=beat,
        resend_max=beat,
        beat=beat,
        runner_beat=beat,
        cluster_lease=100 * beat,
        runner_lease=100 * beat,
        grant_lease=beat // 10,
        delta_linger=min(DELTA_LINGER_MAX, settings.heartbeat_us),
        settle_linger=beat,
        suspect_after=100 * beat,
        start_deadline=beat if reports_starts else 1 << 60,
    )


def make_league(settings: ReplaySettings, faults: bool = False, reports_starts: bool = True) -> ReplayLeague:
    """Return names and configurations: brokers ``b0001`` ..., clusters ``c0001`` ..., runners ``c0001.r``."""
    timings = protocol_timings(settings, faults, reports_starts)
    brokers = tuple(f"b{number + 1:04d}" for number in range(settings.brokers))
    wardens, runners, first_node = [], [], {}
    for number in range(settings.clusters):
        name = f"c{number + 1:04d}"
        first = settings.nodes * number // settings.clusters
        count = settings.nodes * (number + 1) // settings.clusters - first
        runner = f"{name}.r"
        nodes = (NodeConfig(SLOT, (), runner),) * count
        reserve = _reserved_nodes(count, settings.reserve_percent)
        wardens.append(WardenConfig(name, nodes, brokers, timings, reserve))
        runners.append(RunnerConfig(runner, name, tuple(range(count)), timings))
        first_node[runner] = first
    lead = BEATS_BEFORE * timings.beat + LEAD_MESSAGES * settings.delay_us
    return ReplayLeague(brokers, tuple(wardens), tuple(runners), first_node, timings, lead)


def _reserved_nodes(nodes: int, percent: float) -> int:
    """Return the number of a cluster's nodes reserved for short tasks: at least one if the share is not 0."""
    return min(nodes - 1, max(1, round(nodes * percent / 100))) if percent else 0


def make_broker(config: BrokerConfig, order: QueueOrder) -> Broker:
    """Return a broker with the placer and the ranking that collide least."""
    return Broker(config, order, Random(), RotatingRanker(), LeastSizer())


def make_warden(config: WardenConfig, settings: ReplaySettings) -> Warden:
    """Return a warden with the node ranker of the settings."""
    return Warden(config, NODE_RANKERS.get(settings.node_ranker)())


def broker_config(
    league: ReplayLeague, number: int, workload: ReplayWorkload, is_alone: bool
) -> BrokerConfig:
    """Return the configuration of the ``number``-th broker (from 0); ``is_alone``: without a standby."""
    name = league.brokers[number]
    return BrokerConfig(
        name=name,
        number=number + 1,
        brokers=(name,) if is_alone else league.brokers,
        clusters=tuple(warden.name for warden in league.wardens),
        timings=league.timings,
        jobs_max=2 * workload.job_count,
        tasks_max=2 * workload.task_count,
        decisions=False,
    )


def make_machines(
    league: ReplayLeague, workload: ReplayWorkload, settings: ReplaySettings
) -> dict[str, Machine]:
    """Return brokers without standbys, wardens and runners, by name."""
    order = queue_order_of(workload, settings)
    machines: dict[str, Machine] = {}
    for number, name in enumerate(league.brokers):
        machines[name] = make_broker(broker_config(league, number, workload, True), order)
    for warden in league.wardens:
        machines[warden.name] = make_warden(warden, settings)
    for runner in league.runners:
        machines[runner.name] = Runner(runner)
    return machines


class JobSpecs:
    """Job specifications of a workload, as a broker takes them."""

    def __init__(self, workload: ReplayWorkload, settings: ReplaySettings) -> None:
        self._workload = workload
        self._short = is_short(workload, settings) if settings.reserve_percent else []
        others = tuple(name for name in QUEUE_ORDERS.shipped if name != PriorityWithAgeing.name)
        self._priority = [] if settings.order in others else _priority_steps(workload.priority)

    def make_spec(self, job: int, payload: bytes = b"", client_id: str = "") -> JobSpec:
        """Return one job: equal tasks of one slot each, with the mean duration, as under other policies."""
        workload = self._workload
        group = TaskGroup(
            count=workload.offset[job + 1] - workload.offset[job],
            ask=SLOT,
            duration=max(1, workload.estimate[job]),  # 0 means an unknown duration
            payload=payload,
        )
        return JobSpec(
            groups=(group,),
            klass=JobClass.LATENCY if self._short and self._short[job] else JobClass.BATCH,
            priority=self._priority[job] if self._priority else 0,
            tenant=workload.tenant_of(job),
            grace=0,
            client_id=client_id,
        )


def _priority_steps(priority: list[int]) -> list[int]:
    """Return priorities as steps downwards from 0, in the same order; those beyond the product's range are
    equal.

    No step is above 0, because brokers let wardens preempt for such work; no other policy of a replay does.
    """
    steps = {value: -step for step, value in enumerate(sorted(dict.fromkeys(priority), reverse=True))}
    return [max(-PRIORITY_MAX, steps[value]) for value in priority]


class MessageCounts:
    """Message counts of a run by type, with counts of claims and grants."""

    def __init__(self) -> None:
        self.sent_by_type: dict[type, int] = {}
        self.rejects = 0
        self.substitutions = 0
        self.grants = 0
        self.releases = 0

    def count(self, envelope: Envelope) -> None:
        """Count a message."""
        body = envelope.body
        kind = type(body)
        self.sent_by_type[kind] = self.sent_by_type.get(kind, 0) + 1
        if kind is Claim:
            self.releases += len(body.releases)  # type: ignore[union-attr]
        elif kind is TaskUpdates:
            self.grants += len(body.offers)  # type: ignore[union-attr]
        elif kind is ClaimReply:
            self.rejects += len(body.refused)  # type: ignore[union-attr]
            self.substitutions += len(body.substituted)  # type: ignore[union-attr]

    @property
    def heartbeats(self) -> int:
        """Number of periodic messages."""
        return sum(times for kind, times in self.sent_by_type.items() if kind in PERIODIC)

    @property
    def messages(self) -> int:
        """Number of all other messages."""
        return sum(self.sent_by_type.values()) - self.heartbeats

    def add_to_outcome(self, outcome: ReplayOutcome) -> ReplayOutcome:
        """Return the outcome with these counts."""
        return msgspec.structs.replace(
            outcome,
            messages=self.messages,
            rejects=self.rejects,
            substitutions=self.substitutions,
            grants=self.grants,
            releases=self.releases,
            heartbeats=self.heartbeats,
        )
