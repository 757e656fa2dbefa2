"""Random jobs for a league, with the real run time and outcome of each attempt.

The payload of a job carries a plan's number and a group's position, because a backend gets nothing else. Run
time and outcome are a pure function of the seed, the task and the attempt, so no fault can change them.
"""

from collections.abc import Mapping, Sequence
from random import Random
from struct import pack, unpack
from typing import Final

import msgspec

from hanse.core.config import WardenConfig
from hanse.model.constraints import (
    AllOf,
    AnyOf,
    Compare,
    Constraint,
    Has,
    In,
    Is,
    Not,
    Value,
    is_satisfied,
)
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import MILLISECOND, SECOND, index_of
from hanse.model.job import (
    Affinity,
    JobClass,
    JobSpec,
    OnLoss,
    Proximity,
    SpeedUp,
    TaskGroup,
    Together,
    UnreachablePolicy,
)
from hanse.model.messages import Outcome
from hanse.model.resources import Resources
from hanse.policy.hashing import hash_numbers
from hanse.sim.backend import PlannedEnd

LABELS: Final = ("web", "db", "cache")
GIB: Final = 1 << 30
THOUSAND: Final = 1_000
NO_RESTART_SEED_MASK: Final = 0x01CE
TOPOLOGY_SEED_MASK: Final = 0x7090
"""Mask of the draw of ``WorkloadMix.with_topology``."""
"""Mask that makes the draw of ``WorkloadMix.without_restart`` independent of others from the same seed."""


class GroupBehaviour(msgspec.Struct, frozen=True):
    """Real behaviour of the tasks of a group."""

    duration: int
    """Mean run time in microseconds; an attempt takes half to one and a half of it."""
    failures_per_thousand: int
    """Attempts of a thousand that fail."""


class JobPlan(msgspec.Struct, frozen=True):
    """Job that a client will submit."""

    number: int
    at: int
    """True time of the submission."""
    broker: str
    spec: JobSpec
    groups: tuple[GroupBehaviour, ...]
    after: tuple[int, ...] = ()
    """Plans whose jobs must succeed first, of those that are acknowledged by then."""
    cancel_after: int | None = None
    """Time between the acknowledgement and the client's request to cancel."""
    is_infeasible: bool = False
    """True if the job may never fit; its deadline ends it."""


class WorkloadMix(msgspec.Struct, frozen=True):
    """Shares of a seed's kinds of work, in percent, and its sizes."""

    tasks: int = 80
    """Approximate number of tasks."""
    span: int = 15 * SECOND
    """Time in which the tasks arrive."""
    duration: int = 1 * SECOND
    """Mean run time of a task."""
    arrays: int = 50
    gangs: int = 10
    dags: int = 10
    after: int = 10
    elastic: int = 10
    with_constraints: int = 20
    with_affinity: int = 10
    with_priority: int = 20
    latency: int = 15
    preemptible: int = 30
    failing_jobs: int = 10
    cancelled_jobs: int = 5
    deadlines: int = 3
    with_custom_resources: int = 10
    waits_when_unreachable: int = 10
    infeasible: int = 2
    with_cluster_limits: int = 10
    """Jobs that allow or forbid clusters."""
    without_restart: int = 20
    """Jobs whose tasks do not start again after a loss. The draw is separate and changes no other one."""
    with_topology: int = 50
    """Gangs that stay together in a rack or on a node, or spread over zones, if they fit so. The draw is
    separate, too."""


class SeedWorkload:
    """All jobs of a seed."""

    def __init__(self, seed: int, plans: list[JobPlan]) -> None:
        self.seed = seed
        self.plans = plans

    def plan_of(self, payload: bytes) -> tuple[JobPlan, int]:
        """Return the plan and the position of the group that a launch belongs to."""
        number, group = unpack("<II", payload)
        return self.plans[number], group

    def planned_end(self, launch: LaunchAttempt) -> PlannedEnd:
        """Return the planned end of this attempt."""
        plan, group = self.plan_of(launch.payload)
        behaviour = plan.groups[group]
        draw = hash_numbers(self.seed, plan.number, index_of(launch.task), launch.attempt)
        ask = plan.spec.groups[group].ask.cpu
        faster = max(1, launch.size.cpu // ask) if ask else 1
        duration = behaviour.duration * (500 + draw % 1_000) // THOUSAND // faster + MILLISECOND
        if (draw >> 32) % THOUSAND < behaviour.failures_per_thousand:
            return duration, Outcome.FAILED, 1 + (draw >> 48) % 100
        return duration, Outcome.SUCCEEDED, 0

    @property
    def serial_time(self) -> int:
        """Microseconds that all tasks would take one after the other, retries included."""
        return sum(
            group.count * behaviour.duration * (1 + plan.spec.retries)
            for plan in self.plans
            for group, behaviour in zip(plan.spec.groups, plan.groups, strict=True)
        )


def payload_of(number: int, group: int) -> bytes:
    """Return the payload by which a launch finds its plan."""
    return pack("<II", number, group)


def draw_workload(
    rng: Random, mix: WorkloadMix, brokers: Sequence[str], clusters: Sequence[WardenConfig]
) -> SeedWorkload:
    """Draw random jobs, each of which could run in this league or has a deadline."""
    seed = rng.getrandbits(63)
    plans: list[JobPlan] = []
    tasks = 0
    while tasks < mix.tasks:
        plan = _JobDraw(rng, mix, clusters, len(plans)).draw(brokers)
        if hash_numbers(seed, plan.number, NO_RESTART_SEED_MASK) % 100 < mix.without_restart:
            spec = msgspec.structs.replace(plan.spec, on_loss=OnLoss.FAIL)
            plan = msgspec.structs.replace(plan, spec=spec)
        if plan.spec.gang and not plan.is_infeasible:
            spec = draw_topology(hash_numbers(seed, plan.number, TOPOLOGY_SEED_MASK), mix, plan.spec)
            if is_feasible(spec, clusters):
                plan = msgspec.structs.replace(plan, spec=spec)
        plans.append(plan)
        tasks += plan.spec.task_count
    return SeedWorkload(seed, plans)


class _JobDraw:
    """Draw of one job."""

    def __init__(self, rng: Random, mix: WorkloadMix, clusters: Sequence[WardenConfig], number: int) -> None:
        self._rng = rng
        self._mix = mix
        self._clusters = clusters
        self._number = number

    def draw(self, brokers: Sequence[str]) -> JobPlan:
        """Draw a job that fits somewhere, with as many tries as that needs."""
        rng, mix = self._rng, self._mix
        infeasible = self._draw_chance(mix.infeasible)
        while True:
            spec = self._draw_spec(infeasible)
            fits = is_feasible(spec, self._clusters)
            if fits or infeasible:
                break
        near = any(not affinity.apart for group in spec.groups for affinity in group.affinity)
        infeasible = near or not fits
        if infeasible or self._draw_chance(mix.deadlines):
            spec = msgspec.structs.replace(spec, deadline=rng.randint(2 * SECOND, 20 * SECOND))
        after: tuple[int, ...] = ()
        if self._number and self._draw_chance(mix.after):
            after = tuple(sorted({rng.randrange(self._number) for _ in range(rng.randint(1, 3))}))
        failing = rng.choice((50, 200, 600)) if self._draw_chance(mix.failing_jobs) else 0
        behaviours = tuple(
            GroupBehaviour(int(mix.duration * rng.choice((0.02, 0.3, 0.5, 1, 1, 1, 2, 4))), failing)
            for _ in spec.groups
        )
        return JobPlan(
            self._number,
            rng.randrange(mix.span),
            rng.choice(brokers),
            spec,
            behaviours,
            after,
            rng.randrange(10 * SECOND) if self._draw_chance(mix.cancelled_jobs) else None,
            infeasible,
        )

    def _draw_spec(self, infeasible: bool) -> JobSpec:
        rng, mix = self._rng, self._mix
        gang = self._draw_chance(mix.gangs)
        allowed, forbidden = self._draw_cluster_limits()
        return JobSpec(
            groups=self._draw_groups(gang, infeasible),
            name=f"job{self._number}",
            gang=gang,
            klass=JobClass.LATENCY if self._draw_chance(mix.latency) else JobClass.BATCH,
            priority=rng.choice((1, 5, 100)) if self._draw_chance(mix.with_priority) else 0,
            retries=rng.choice((0, 0, 1, 3)),
            preemptible=self._draw_chance(mix.preemptible),
            grace=rng.choice((0, 50 * MILLISECOND, SECOND)),
            unreachable=UnreachablePolicy.WAIT
            if self._draw_chance(mix.waits_when_unreachable)
            else UnreachablePolicy.MOVE,
            clusters_allowed=allowed,
            clusters_forbidden=forbidden,
            data=(rng.choice(self._clusters).name,) if self._draw_chance(20) else (),
            labels=(rng.choice(LABELS),) if self._draw_chance(mix.with_affinity) else (),
            client_id=f"submission{self._number}",
        )

    def _draw_groups(self, gang: bool, infeasible: bool) -> tuple[TaskGroup, ...]:
        rng, mix = self._rng, self._mix
        if gang or not self._draw_chance(mix.dags):
            count = rng.randint(2, 6) if gang else self._draw_array_size()
            return (self._draw_group("main", count, (), 0, infeasible),)
        names: list[str] = []
        groups: list[TaskGroup] = []
        for position in range(rng.randint(2, 5)):
            needs = tuple(name for name in names if self._draw_chance(50))
            groups.append(self._draw_group(f"g{position}", rng.randint(1, 4), needs, position, infeasible))
            names.append(f"g{position}")
        return tuple(groups)

    def _draw_array_size(self) -> int:
        return self._rng.choice((2, 4, 8, 20)) if self._draw_chance(self._mix.arrays) else 1

    def _draw_group(
        self, name: str, count: int, needs: tuple[str, ...], position: int, infeasible: bool
    ) -> TaskGroup:
        rng, mix = self._rng, self._mix
        ask = Resources(
            cpu=rng.choice((0, 500, 1_000, 1_000, 2_000, 4_000)),
            memory=rng.choice((0, GIB, 4 * GIB)),
            gpu=rng.choice((0, 0, 0, 0, 1)),
            custom=(("fpga", rng.randint(1, 2)),) if self._draw_chance(mix.with_custom_resources) else (),
        )
        if infeasible and self._draw_chance(50):
            ask = msgspec.structs.replace(ask, cpu=1_000_000)
        elif ask == Resources():
            ask = Resources(cpu=1_000)
        elastic = ask.cpu > 0 and self._draw_chance(mix.elastic)
        return TaskGroup(
            name=name,
            count=count,
            ask=ask,
            ask_max=msgspec.structs.replace(ask, cpu=ask.cpu * rng.choice((2, 4))) if elastic else None,
            speed_up=SpeedUp(((ask.cpu, ask.gpu, 1_000), (ask.cpu * 2, ask.gpu, 1_800))) if elastic else None,
            where=draw_constraint(rng) if self._draw_chance(mix.with_constraints) else None,
            affinity=self._draw_affinity(),
            needs=needs,
            duration=mix.duration if self._draw_chance(50) else None,
            payload=payload_of(self._number, position),
        )

    def _draw_affinity(self) -> tuple[Affinity, ...]:
        if not self._draw_chance(self._mix.with_affinity):
            return ()
        rng = self._rng
        scope = rng.choice((Proximity.NODE, Proximity.NODE, Proximity.CLUSTER))
        return (Affinity(rng.choice(LABELS), scope, self._draw_chance(70)),)

    def _draw_cluster_limits(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if not self._draw_chance(self._mix.with_cluster_limits):
            return (), ()
        some = tuple(cluster.name for cluster in self._clusters if self._draw_chance(50))
        return (some, ()) if self._draw_chance(50) else ((), some)

    def _draw_chance(self, percent: int) -> bool:
        return self._rng.randrange(100) < percent


def draw_constraint(rng: Random, depth: int = 2) -> Constraint:
    """Draw a condition over the attributes that ``seed_options._draw_nodes`` gives nodes."""
    kind = rng.randrange(8 if depth else 5)
    if kind == 0:
        return Is("zone", rng.choice(("a", "b", "c")))
    if kind == 1:
        return In("zone", ("a", rng.choice(("b", "c"))))
    if kind == 2:
        return Has("ssd")
    if kind == 3:
        return Compare("disk_gb", rng.choice(("<", "<=", ">", ">=")), rng.choice((50, 100, 200)))
    if kind == 4:
        return Is("ssd", rng.choice((True, False)))
    terms = tuple(draw_constraint(rng, depth - 1) for _ in range(2))
    if kind == 5:
        return AllOf(terms)
    return AnyOf(terms) if kind == 6 else Not(terms[0])


def draw_topology(draw: int, mix: WorkloadMix, spec: JobSpec) -> JobSpec:
    """Return a gang with a part of a cluster to stay in, or a spread, drawn from a number."""
    if draw % 100 >= mix.with_topology:
        return spec
    together = (Together.RACK, Together.RACK, Together.NODE, Together.CLUSTER)[(draw >> 8) % 4]
    spread = "zone" if together is not Together.NODE and (draw >> 16) % 2 else ""
    most = (0, 1, 2, 3)[(draw >> 24) % 4] if spread else 0
    return msgspec.structs.replace(spec, together=together, spread=spread, spread_max=most)


def is_feasible(spec: JobSpec, clusters: Sequence[WardenConfig]) -> bool:
    """True if every group of the job could run in an empty league; a gang: all of it in one cluster."""
    latency = spec.klass is JobClass.LATENCY
    return all(
        any(
            _count_places(spec, group, cluster, latency) >= (group.count if spec.gang else 1)
            for cluster in clusters
            if cluster.name not in spec.clusters_forbidden
            and (not spec.clusters_allowed or cluster.name in spec.clusters_allowed)
        )
        and not (spec.gang and _has_anti_affinity_to_itself(spec, group, clusters))
        for group in spec.groups
    )


def _count_places(spec: JobSpec, group: TaskGroup, cluster: WardenConfig, latency: bool) -> int:
    """Return how many tasks of a group an empty cluster can hold at once, together as its job says."""
    nodes = cluster.nodes if latency else cluster.nodes[: len(cluster.nodes) - cluster.reserve]
    parts: dict[Value, dict[Value, int]] = {}
    for number, node in enumerate(nodes):
        attributes = dict(node.attributes)
        if group.where is not None and not is_satisfied(group.where, attributes):
            continue
        part = part_of_node(spec, number, attributes)
        value = attributes.get(spec.spread) if spec.spread else ""
        if part is not None and value is not None:
            values = parts.setdefault(part, {})
            fits = min(group.count, count_fits(group.ask, node.capacity))
            values[value] = values.get(value, 0) + fits
    most = spec.spread_max or group.count
    return max([sum([min(most, fits) if spec.spread else fits for fits in values.values()])
                for values in parts.values()], default=0)  # fmt: skip


def part_of_node(spec: JobSpec, node: int, attributes: Mapping[str, Value]) -> Value | None:
    """Return the part of its cluster that a node belongs to, as the job counts; None: to none."""
    if spec.together is Together.CLUSTER:
        return ""
    return node if spec.together is Together.NODE else attributes.get("rack")


def count_fits(ask: Resources, capacity: Resources) -> int:
    """Return how often a request, which must not be empty, fits into a capacity."""
    has = dict(capacity.custom)
    pairs = [(ask.cpu, capacity.cpu), (ask.memory, capacity.memory), (ask.gpu, capacity.gpu)]
    pairs += [(amount, has.get(name, 0)) for name, amount in ask.custom]
    return min([have // amount for amount, have in pairs if amount])


def _has_anti_affinity_to_itself(spec: JobSpec, group: TaskGroup, clusters: Sequence[WardenConfig]) -> bool:
    """True if a gang has anti-affinity to itself and so might not fit; the draw avoids such gangs."""
    own = any(affinity.apart and affinity.label in spec.labels for affinity in group.affinity)
    return own and len(clusters) > 0
