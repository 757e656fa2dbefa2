"""Options drawn from a seed: the league, the conditions of its network, and the faults with their times.

The draws are made for swarm testing: each kind of fault is off in a good share of the seeds, because faults
of one kind can hide the bugs that another kind would show. One record that can be printed holds all draws.
"""

from random import Random
from typing import Final

import msgspec

from hanse.core.config import NodeConfig, Timings, WardenConfig
from hanse.model.constraints import Value
from hanse.model.ids import MILLISECOND, SECOND
from hanse.model.resources import Resources
from hanse.policy.hashing import hash_numbers
from hanse.registry import CLUSTER_RANKERS, PLACERS, QUEUE_ORDERS, SIZERS
from hanse.sim.disk import Durability
from hanse.sim.league import PolicyNames
from hanse.sim.network import DELAY_KINDS
from hanse.sim.process_clock import MILLION, ProcessClock
from hanse.sim.workload import GIB, WorkloadMix

OFFSET_MAX: Final = 1_000 * SECOND
RATE_PARTS_MAX: Final = MILLION // 50
"""Largest deviation of a clock's rate: two percent, within what ``core.config.DRIFT_PERCENT`` allows for."""
SCENARIOS: Final = (
    "ordinary", "ordinary", "ordinary", "ordinary", "crowd", "tiny", "slow", "adoption", "flaky", "leases",
    "calm",
)  # fmt: skip
"""Scenarios of seeds; most are ordinary.

``crowd``: many brokers, few nodes. ``tiny``: one cluster of one or two nodes. ``slow``: late reports, long
delays. ``adoption``: brokers stay down until standbys take over. ``flaky``: runners and hosts fail often.
``leases``: tasks outlive their leases, and renewals come late. ``calm``: no faults at all.
"""
SHORT_BEAT: Final = 200 * MILLISECOND
LATER_POLICIES_SEED_MASK: Final = 0x1A7E
"""Mask of the draw of policies that came after the seeds: independent of others from the same seed."""


class NetworkConditions(msgspec.Struct, frozen=True):
    """Behaviour of the links in the safety phase. Delays in microseconds, shares in percent."""

    delay_kind: str = "constant"
    delay_mean: int = 500
    loss: int = 0
    duplication: int = 0
    in_order: bool = False
    encodes: bool = False


class FaultCounts(msgspec.Struct, frozen=True):
    """Number of faults of each kind in the safety phase; 0: switched off."""

    broker_crashes: int = 0
    warden_crashes: int = 0
    runner_crashes: int = 0
    host_losses: int = 0
    pauses: int = 0
    partitions: int = 0
    clogs: int = 0
    drains: int = 0
    foreign_loads: int = 0
    """Times that others use some of a node for a while."""
    output_hangs: int = 0
    """Times that the output of a runner's tasks hangs for a while."""
    rolling_restarts: int = 0
    """Times that every process is restarted, one after the other."""
    downtime_max: int = 3 * SECOND
    one_way: int = 50
    """Share of partitions that cut one direction only, in percent."""


class SeedOptions(msgspec.Struct, frozen=True):
    """Everything that a seed decides, apart from the single draws."""

    seed: int
    scenario: str
    brokers: tuple[str, ...]
    wardens: tuple[WardenConfig, ...]
    clocks: bool
    """True if clocks differ in offset and rate."""
    durability: Durability
    timings: Timings
    network: NetworkConditions
    rates: FaultCounts
    workload: WorkloadMix
    policies: PolicyNames
    safety: int
    """Length of the safety phase in microseconds."""
    decisions: bool = True
    lost_max: int = 50
    poll_interval: int = 0
    """Microseconds between two looks of a backend at what has started and ended; 0: it is told at once."""


def draw_options(seed: int, rng: Random) -> SeedOptions:
    """Draw the options of a seed."""
    scenario = rng.choice(SCENARIOS)
    calm = scenario == "calm"
    timings = _draw_timings(rng, scenario)
    brokers = tuple(
        f"b{n + 1}" for n in range(rng.randint(4, 7) if scenario == "crowd" else rng.randint(1, 4))
    )
    wardens = _draw_wardens(rng, scenario, brokers, timings)
    safety = rng.randint(8, 30) * SECOND
    network = NetworkConditions(
        delay_kind=rng.choice(DELAY_KINDS[:2] if calm else DELAY_KINDS),
        delay_mean=rng.choice((20, 100, 300)) * MILLISECOND
        if scenario == "slow"
        else rng.choice((100, 1_000, 5_000, 20_000)),
        loss=0 if calm else rng.choice((0, 0, 1, 10, 30)),
        duplication=0 if calm else rng.choice((0, 0, 5, 30)),
        in_order=rng.random() < 0.3,
        encodes=rng.random() < 0.1,
    )
    grouped = rng.random() < 0.4
    options = SeedOptions(
        seed=seed,
        scenario=scenario,
        brokers=brokers,
        wardens=wardens,
        clocks=rng.random() < 0.6,
        durability=Durability(
            commit_min=100 if grouped else 0,
            commit_max=rng.choice((500, 5_000, 50_000)) if grouped else 0,
            snapshot_every=rng.choice((60, 120, 250)),
        ),
        timings=timings,
        network=network,
        rates=FaultCounts() if calm else _draw_fault_counts(rng, scenario),
        workload=_draw_mix(rng, scenario, safety),
        policies=_draw_policies(rng, seed),
        safety=safety,
        decisions=rng.random() < 0.5,
    )
    output_hangs = 0 if calm or rng.random() < 0.4 else rng.randint(1, 4)
    rolling_restarts = 0 if calm or rng.random() < 0.7 else 1
    rates = msgspec.structs.replace(
        options.rates, output_hangs=output_hangs, rolling_restarts=rolling_restarts
    )
    poll_interval = rng.choice((0, 0, 0, 10, 100, 400)) * MILLISECOND
    return msgspec.structs.replace(options, rates=rates, poll_interval=poll_interval)


def _draw_policies(rng: Random, seed: int) -> PolicyNames:
    """Draw policies. Those that came later have a draw of their own, so that all else of a seed stays."""
    kinds = (QUEUE_ORDERS.shipped, 4), (PLACERS.shipped, 4), (CLUSTER_RANKERS.shipped, 2), (SIZERS.shipped, 4)
    names = [rng.choice(shipped[:first]) for shipped, first in kinds]
    for at, (shipped, first) in enumerate(kinds):
        turn = hash_numbers(seed, at, LATER_POLICIES_SEED_MASK) % len(shipped)
        if turn >= first:
            names[at] = shipped[turn]
    return PolicyNames(*names)


def _draw_timings(rng: Random, scenario: str) -> Timings:
    """Draw timings with leases of a few seconds, short enough to lapse in a run of half a minute."""
    short = scenario == "leases"
    beat = SHORT_BEAT if short else rng.choice((200, 300, 500, 1_000)) * MILLISECOND
    lease = beat * rng.randint(3, 5 if short else 8)
    return Timings(
        ack_delay=rng.choice((20, 100, 200)) * MILLISECOND,
        resend_after=rng.choice((200, 500, 1_000)) * MILLISECOND,
        resend_max=rng.choice((1_000, 4_000)) * MILLISECOND,
        beat=beat,
        runner_beat=beat,
        cluster_lease=lease * rng.choice((1, 2)),
        runner_lease=lease,
        lease_grace=rng.choice((50, 50, 100) if short else (50, 200, 1_000)) * MILLISECOND,
        grant_lease=rng.choice((300, 1_000, 2_000)) * MILLISECOND,
        delta_linger=rng.choice((500, 2_000)) * MILLISECOND
        if scenario == "slow"
        else rng.choice((0, 10, 50)) * MILLISECOND,
        started_linger=rng.choice((0, 100, 500)) * MILLISECOND,
        settle_linger=rng.choice((0, 100, 500)) * MILLISECOND,
        suspect_after=beat * rng.randint(3, 8),
        start_deadline=rng.choice((2, 5)) * SECOND,
        conflict_window=rng.choice((0, 0, 5, 100)) * MILLISECOND,
        hold_patience=rng.choice((2, 10)) * SECOND,
        preempt_after=rng.choice((0, 200, 1_000)) * MILLISECOND,
    )


def _draw_wardens(
    rng: Random, scenario: str, brokers: tuple[str, ...], timings: Timings
) -> tuple[WardenConfig, ...]:
    if scenario == "tiny":
        sizes = [rng.randint(1, 2)]
    elif scenario == "crowd":
        sizes = [rng.randint(1, 2) for _ in range(rng.randint(1, 3))]
    else:
        sizes = [rng.randint(1, 8) for _ in range(rng.randint(1, 5))]
    wardens = []
    for number, size in enumerate(sizes):
        name = f"c{number + 1}"
        wardens.append(
            WardenConfig(
                name=name,
                nodes=_draw_nodes(rng, name, size),
                brokers=brokers,
                timings=timings,
                reserve=1 if size >= 3 and rng.random() < 0.3 else 0,
            )
        )
    return tuple(wardens)


def _draw_nodes(rng: Random, cluster: str, count: int) -> tuple[NodeConfig, ...]:
    """Draw nodes of mixed sizes and attributes, divided among one or more runners."""
    runners = rng.randint(1, min(3, count))
    nodes = []
    for position in range(count):
        attributes: dict[str, Value] = {
            "zone": rng.choice(("a", "b", "c")),
            "disk_gb": rng.choice((40, 100, 250)),
        }
        if rng.random() < 0.5:
            attributes["ssd"] = rng.random() < 0.8
        capacity = Resources(
            cpu=rng.choice((1_000, 2_000, 4_000, 4_000, 8_000)),
            memory=rng.choice((4, 16)) * GIB,
            gpu=rng.choice((0, 0, 0, 2)),
            custom=(("fpga", 2),) if rng.random() < 0.25 else (),
        )
        runner = f"{cluster}r{position % runners + 1}"
        if position % 4:  # some nodes are in no rack
            attributes["rack"] = f"r{position // 3}"
        host = f"host{position % runners + 1}.{cluster}"
        nodes.append(NodeConfig(capacity, tuple(sorted(attributes.items())), runner, host))
    return tuple(nodes)


def _draw_fault_counts(rng: Random, scenario: str) -> FaultCounts:
    """Draw the number of faults of each kind; each kind is off in four seeds of ten."""

    def draw_count(most: int, least: int = 1) -> int:
        return 0 if rng.random() < 0.4 else rng.randint(least, most)

    return FaultCounts(
        broker_crashes=rng.randint(1, 3) if scenario == "adoption" else draw_count(3),
        warden_crashes=draw_count(5),
        runner_crashes=rng.randint(4, 12) if scenario == "flaky" else draw_count(5),
        host_losses=rng.randint(1, 4) if scenario == "flaky" else draw_count(2),
        pauses=draw_count(6),
        partitions=draw_count(4),
        clogs=rng.randint(6, 12) if scenario == "leases" else draw_count(4),
        drains=draw_count(4),
        foreign_loads=draw_count(6),
        downtime_max=rng.choice((500 * MILLISECOND, 3 * SECOND, 20 * SECOND)),
        one_way=rng.choice((0, 50, 100)),
    )


def _draw_mix(rng: Random, scenario: str, safety: int) -> WorkloadMix:
    def draw_share(most: int) -> int:
        return 0 if rng.random() < 0.4 else rng.randint(1, most)

    return WorkloadMix(
        tasks=rng.randint(20, 60) if scenario in ("tiny", "crowd", "leases") else rng.randint(30, 150),
        span=safety * 4 // 5,
        duration=rng.choice((2_000,) if scenario == "leases" else (50, 300, 1_000, 2_000)) * MILLISECOND,
        arrays=rng.choice((0, 30, 70)),
        gangs=draw_share(30),
        dags=draw_share(30),
        after=draw_share(30),
        elastic=draw_share(30),
        with_constraints=draw_share(60),
        with_affinity=draw_share(30),
        with_priority=draw_share(60),
        latency=draw_share(40),
        preemptible=draw_share(100),
        failing_jobs=draw_share(40),
        cancelled_jobs=draw_share(20),
        deadlines=draw_share(10),
        with_custom_resources=draw_share(20),
        waits_when_unreachable=draw_share(40),
        infeasible=draw_share(5),
        with_cluster_limits=draw_share(30),
    )


def draw_clock(rng: Random, skewed: bool) -> ProcessClock:
    """Draw the clock of a process."""
    if not skewed:
        return ProcessClock()
    return ProcessClock(rng.randrange(OFFSET_MAX), MILLION + rng.randint(-RATE_PARTS_MAX, RATE_PARTS_MAX))
