"""Random jobs for a league, with the real run time and outcome of each attempt.

The payload of a job carries a plan's number and a group's position, because a backend gets nothing else. Run
time and outcome are a pure function of the seed, the task and the attempt, so no fault can change them.
"""

from collections.abc import Sequence
from random import Random
from struct import pack, unpack
from typing import Final

import msgspec

from hanse.core.config import WardenConfig
from hanse.model.constraints import All, AnyOf, Compare, Constraint, Has, In, Is, Not, is_satisfied
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
    UnreachablePolicy,
)
from hanse.model.messages import Outcome
from hanse.model.resources import Resources
from hanse.policy.hashing import hash_numbers
from hanse.sim.backend import Fate

LABELS: Final = ("web", "db", "cache")
GIB: Final = 1 << 30
THOUSAND: Final = 1_000
ONCE: Final = 0x01CE
"""Mask that makes the draw of ``WorkloadMix.without_restart`` independent of others from the same seed."""


class GroupTruth(msgspec.Struct, frozen=True):
    """Real behaviour of the tasks of a group."""

    duration: int
    """Mean run time in microseconds; an attempt takes half to one and a half of it."""
    failing: int
    """Attempts of a thousand that fail."""


class JobPlan(msgspec.Struct, frozen=True):
    """Job that a client will submit."""

    number: int
    at: int
    """True time of the submission."""
    broker: str
    spec: JobSpec
    groups: tuple[GroupTruth, ...]
    after: tuple[int, ...] = ()
    """Plans whose jobs must succeed first, of those that are acknowledged by then."""
    cancel_after: int | None = None
    """Time between the acknowledgement and the client's request to cancel."""
    hopeless: bool = False
    """True if the job may never fit; its deadline ends it."""


class Mix(msgspec.Struct, frozen=True):
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
    constrained: int = 20
    affine: int = 10
    urgent: int = 20
    latency: int = 15
    preemptible: int = 30
    failing: int = 10
    cancelled: int = 5
    deadlines: int = 3
    custom: int = 10
    waiting: int = 10
    hopeless: int = 2
    picky: int = 10
    """Jobs that allow or forbid clusters."""
    once: int = 20
    """Jobs whose tasks do not start again after a loss. The draw is separate and changes no other one."""


class Workload:
    """All jobs of a seed."""

    def __init__(self, seed: int, plans: list[JobPlan]) -> None:
        self.seed = seed
        self.plans = plans

    def plan_of(self, payload: bytes) -> tuple[JobPlan, int]:
        """Return the plan and the position of the group that a launch belongs to."""
        number, group = unpack("<II", payload)
        return self.plans[number], group

    def fate(self, launch: LaunchAttempt) -> Fate:
        """Return the planned end of this attempt."""
        plan, group = self.plan_of(launch.payload)
        truth = plan.groups[group]
        draw = hash_numbers(self.seed, plan.number, index_of(launch.task), launch.attempt)
        ask = plan.spec.groups[group].ask.cpu
        faster = max(1, launch.size.cpu // ask) if ask else 1
        duration = truth.duration * (500 + draw % 1_000) // THOUSAND // faster + MILLISECOND
        if (draw >> 32) % THOUSAND < truth.failing:
            return duration, Outcome.FAILED, 1 + (draw >> 48) % 100
        return duration, Outcome.SUCCEEDED, 0

    @property
    def serial_time(self) -> int:
        """Microseconds that all tasks would take one after the other, retries included."""
        return sum(
            group.count * truth.duration * (1 + plan.spec.retries)
            for plan in self.plans
            for group, truth in zip(plan.spec.groups, plan.groups, strict=True)
        )


def payload_of(number: int, group: int) -> bytes:
    """Return the payload by which a launch finds its plan."""
    return pack("<II", number, group)


def draw_workload(
    rng: Random, wish: Mix, brokers: Sequence[str], clusters: Sequence[WardenConfig]
) -> Workload:
    """Draw random jobs, each of which could run in this league or has a deadline."""
    seed = rng.getrandbits(63)
    plans: list[JobPlan] = []
    tasks = 0
    while tasks < wish.tasks:
        plan = _Draw(rng, wish, clusters, len(plans)).plan(brokers)
        if hash_numbers(seed, plan.number, ONCE) % 100 < wish.once:
            spec = msgspec.structs.replace(plan.spec, on_loss=OnLoss.FAIL)
            plan = msgspec.structs.replace(plan, spec=spec)
        plans.append(plan)
        tasks += plan.spec.tasks
    return Workload(seed, plans)


class _Draw:
    """Draw of one job."""

    def __init__(self, rng: Random, wish: Mix, clusters: Sequence[WardenConfig], number: int) -> None:
        self._rng = rng
        self._wish = wish
        self._clusters = clusters
        self._number = number

    def plan(self, brokers: Sequence[str]) -> JobPlan:
        """Draw a job that fits somewhere, with as many tries as that needs."""
        rng, wish = self._rng, self._wish
        hopeless = self._says(wish.hopeless)
        while True:
            spec = self._spec(hopeless)
            fits = feasible(spec, self._clusters)
            if fits or hopeless:
                break
        near = any(not affinity.apart for group in spec.groups for affinity in group.affinity)
        hopeless = near or not fits
        if hopeless or self._says(wish.deadlines):
            spec = msgspec.structs.replace(spec, deadline=rng.randint(2 * SECOND, 20 * SECOND))
        after: tuple[int, ...] = ()
        if self._number and self._says(wish.after):
            after = tuple(sorted({rng.randrange(self._number) for _ in range(rng.randint(1, 3))}))
        failing = rng.choice((50, 200, 600)) if self._says(wish.failing) else 0
        truths = tuple(
            GroupTruth(int(wish.duration * rng.choice((0.02, 0.3, 0.5, 1, 1, 1, 2, 4))), failing)
            for _ in spec.groups
        )
        return JobPlan(
            self._number,
            rng.randrange(wish.span),
            rng.choice(brokers),
            spec,
            truths,
            after,
            rng.randrange(10 * SECOND) if self._says(wish.cancelled) else None,
            hopeless,
        )

    def _spec(self, hopeless: bool) -> JobSpec:
        rng, wish = self._rng, self._wish
        gang = self._says(wish.gangs)
        allowed, forbidden = self._clusters_of()
        return JobSpec(
            groups=self._groups(gang, hopeless),
            name=f"job{self._number}",
            gang=gang,
            klass=JobClass.LATENCY if self._says(wish.latency) else JobClass.BATCH,
            priority=rng.choice((1, 5, 100)) if self._says(wish.urgent) else 0,
            retries=rng.choice((0, 0, 1, 3)),
            preemptible=self._says(wish.preemptible),
            grace=rng.choice((0, 50 * MILLISECOND, SECOND)),
            unreachable=UnreachablePolicy.WAIT if self._says(wish.waiting) else UnreachablePolicy.MOVE,
            clusters_allowed=allowed,
            clusters_forbidden=forbidden,
            data=(rng.choice(self._clusters).name,) if self._says(20) else (),
            labels=(rng.choice(LABELS),) if self._says(wish.affine) else (),
            client_id=f"submission{self._number}",
        )

    def _groups(self, gang: bool, hopeless: bool) -> tuple[TaskGroup, ...]:
        rng, wish = self._rng, self._wish
        if gang or not self._says(wish.dags):
            count = rng.randint(2, 6) if gang else self._array()
            return (self._group("main", count, (), 0, hopeless),)
        names: list[str] = []
        groups: list[TaskGroup] = []
        for position in range(rng.randint(2, 5)):
            needs = tuple(name for name in names if self._says(50))
            groups.append(self._group(f"g{position}", rng.randint(1, 4), needs, position, hopeless))
            names.append(f"g{position}")
        return tuple(groups)

    def _array(self) -> int:
        return self._rng.choice((2, 4, 8, 20)) if self._says(self._wish.arrays) else 1

    def _group(
        self, name: str, count: int, needs: tuple[str, ...], position: int, hopeless: bool
    ) -> TaskGroup:
        rng, wish = self._rng, self._wish
        ask = Resources(
            cpu=rng.choice((0, 500, 1_000, 1_000, 2_000, 4_000)),
            memory=rng.choice((0, GIB, 4 * GIB)),
            gpu=rng.choice((0, 0, 0, 0, 1)),
            custom=(("fpga", rng.randint(1, 2)),) if self._says(wish.custom) else (),
        )
        if hopeless and self._says(50):
            ask = msgspec.structs.replace(ask, cpu=1_000_000)
        elif ask == Resources():
            ask = Resources(cpu=1_000)
        elastic = ask.cpu > 0 and self._says(wish.elastic)
        return TaskGroup(
            name=name,
            count=count,
            ask=ask,
            ask_max=msgspec.structs.replace(ask, cpu=ask.cpu * rng.choice((2, 4))) if elastic else None,
            speed_up=SpeedUp(((ask.cpu, ask.gpu, 1_000), (ask.cpu * 2, ask.gpu, 1_800))) if elastic else None,
            where=draw_constraint(rng) if self._says(wish.constrained) else None,
            affinity=self._affinity(),
            needs=needs,
            duration=wish.duration if self._says(50) else None,
            payload=payload_of(self._number, position),
        )

    def _affinity(self) -> tuple[Affinity, ...]:
        if not self._says(self._wish.affine):
            return ()
        rng = self._rng
        scope = rng.choice((Proximity.NODE, Proximity.NODE, Proximity.CLUSTER))
        return (Affinity(rng.choice(LABELS), scope, self._says(70)),)

    def _clusters_of(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if not self._says(self._wish.picky):
            return (), ()
        some = tuple(cluster.name for cluster in self._clusters if self._says(50))
        return (some, ()) if self._says(50) else ((), some)

    def _says(self, percent: int) -> bool:
        return self._rng.randrange(100) < percent


def draw_constraint(rng: Random, depth: int = 2) -> Constraint:
    """Draw a condition over the attributes that ``faults._draw_nodes`` gives nodes."""
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
        return All(terms)
    return AnyOf(terms) if kind == 6 else Not(terms[0])


def feasible(spec: JobSpec, clusters: Sequence[WardenConfig]) -> bool:
    """True if every group of the job could run in an empty league; a gang: all of it in one cluster."""
    latency = spec.klass is JobClass.LATENCY
    return all(
        any(
            _room_for(group, cluster, latency) >= (group.count if spec.gang else 1)
            for cluster in clusters
            if cluster.name not in spec.clusters_forbidden
            and (not spec.clusters_allowed or cluster.name in spec.clusters_allowed)
        )
        and not (spec.gang and _crowds(spec, group, clusters))
        for group in spec.groups
    )


def _room_for(group: TaskGroup, cluster: WardenConfig, latency: bool) -> int:
    """Return how many tasks of a group an empty cluster can hold at once."""
    nodes = cluster.nodes if latency else cluster.nodes[: len(cluster.nodes) - cluster.reserve]
    total = 0
    for node in nodes:
        if group.where is None or is_satisfied(group.where, dict(node.attributes)):
            total += min(group.count, times(group.ask, node.capacity))
    return total


def times(ask: Resources, capacity: Resources) -> int:
    """Return how often a request, which must not be empty, fits into a capacity."""
    has = dict(capacity.custom)
    pairs = [(ask.cpu, capacity.cpu), (ask.memory, capacity.memory), (ask.gpu, capacity.gpu)]
    pairs += [(amount, has.get(name, 0)) for name, amount in ask.custom]
    return min([have // amount for amount, have in pairs if amount])


def _crowds(spec: JobSpec, group: TaskGroup, clusters: Sequence[WardenConfig]) -> bool:
    """True if a gang has anti-affinity to itself and so might not fit; the draw avoids such gangs."""
    own = any(affinity.apart and affinity.label in spec.labels for affinity in group.affinity)
    return own and len(clusters) > 0
