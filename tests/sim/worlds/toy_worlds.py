"""Small worlds and traces, and strategies that draw worlds."""

from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from hanse.sim.traces.chunk import SECOND, JobChunk, empty_chunk
from hanse.sim.worlds.round_trips import PLACES
from hanse.sim.worlds.world import (
    GANG_TOPOLOGIES,
    GB,
    GIB,
    TOPOLOGIES,
    DataRules,
    DeadlineRules,
    GangRules,
    InterferenceRules,
    NodeClass,
    NodeRun,
    OutageRules,
    RoundTrips,
    TemplateRules,
    TokenRules,
    WorkKind,
    WorkRules,
    World,
    WorldCluster,
    WorldNetwork,
)


def toy_world(**changes: Any) -> World:
    """Two clusters, two node classes, two kinds of work."""
    world = World(
        name="toy",
        work_kinds=(
            WorkKind(name="compute", cores=(2, 4)),
            WorkKind(name="etl", cores=(2,), data_rate=10_000_000),
        ),
        node_classes=(
            NodeClass(name="old", cores=16, memory=64 * GIB, speed={"compute": 0.7}),
            NodeClass(name="new", cores=32, memory=256 * GIB, speed={"compute": 1.2, "etl": 1.1}),
        ),
        clusters=(
            WorldCluster(name="north", region="FI", nodes=(NodeRun(node_class="old", count=25),)),
            WorldCluster(
                name="south",
                region="ES",
                nodes=(NodeRun(node_class="new", count=20), NodeRun(node_class="old", count=20)),
            ),
        ),
        templates=TemplateRules(shared=12, local=4),
    )
    return msgspec.structs.replace(world, **changes)


def toy_chunk(
    jobs: int = 4_000, tasks: int = 3, gap_seconds: float = 2.0, seed: int = 0, **columns: Any
) -> JobChunk:
    """Jobs at equal gaps; every duration occurs in one job only."""
    generator = np.random.default_rng(seed)
    base = 5 * SECOND + generator.permutation(jobs) * 10_000
    duration = (base[:, None] + np.arange(tasks)).ravel().astype(np.int64)
    zero, small = np.zeros(jobs, np.int64), np.full(jobs, -1, np.int32)
    chunk = msgspec.structs.replace(
        empty_chunk(),
        job=np.arange(jobs),
        arrival=np.rint(np.arange(jobs) * gap_seconds * SECOND).astype(np.int64),
        offset=np.arange(jobs + 1) * tasks,
        duration=duration,
        cpu=zero,
        memory=zero,
        gpu=zero,
        estimate=zero,
        user=small,
        group=small,
        site=small,
        parent=np.arange(jobs),
    )
    chunk = msgspec.structs.replace(chunk, **columns)
    chunk.check()
    return chunk


names = st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True)
factors = st.floats(0.01, 100.0)
shares = st.floats(0.0, 1.0)
rates = st.integers(1, 10**12)
amounts = st.integers(GIB, 1 << 45)
times = st.integers(1, 10**12)
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any world that the file allows; every kind of work fits every node class."""
    kinds = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    classes = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    clusters = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    regions = draw(st.lists(st.sampled_from(list(PLACES)), min_size=1, max_size=4, unique=True))
    matrix = draw(
        st.lists(
            st.lists(st.integers(1, 10**7), min_size=len(regions), max_size=len(regions)).map(tuple),
            min_size=len(regions),
            max_size=len(regions),
        )
    )
    trips = RoundTrips(origin=draw(texts), regions=tuple(regions), matrix=tuple(matrix))
    low, high = sorted((draw(times), draw(times)))
    return World(
        name=draw(names),
        about=draw(texts),
        work_kinds=tuple(_kind(draw, name) for name in kinds),
        node_classes=tuple(_node_class(draw, name, kinds) for name in classes),
        clusters=tuple(_cluster(draw, name, classes, kinds, regions) for name in clusters),
        network=WorldNetwork(
            nic=draw(rates), rack_flow=draw(rates), lan_flow=draw(rates), wan_flow=draw(rates),
            wan_window=draw(rates), round_trips=trips,
        ),
        templates=TemplateRules(
            shared=draw(st.integers(0, 9)), local=draw(st.integers(0, 9)), local_share=draw(shares),
            unknown_share=draw(shares), speed_deviation=draw(shares), demand_deviation=draw(shares),
            sensitivity_deviation=draw(shares), data_deviation=draw(shares),
            seed=draw(st.integers(0, 1 << 62)),
        ),
        data=DataRules(
            replicas=draw(st.integers(0, 4)), home_share=draw(shares), holds_cores=draw(st.booleans())
        ),
        interference=InterferenceRules(knee=draw(factors), slope=draw(factors)),
        failures=OutageRules(between=draw(st.integers(0, 10**12)), length=draw(times)),
        work=WorkRules(
            horizon=draw(times), task_least=low, task_most=high, tasks_per_job=draw(st.integers(1, 99)),
            load_spread=draw(shares), resources=draw(st.sampled_from(["kind", "trace"])),
            duration_scales=draw(st.dictionaries(texts.filter(bool), factors, max_size=2)),
            tokens=TokenRules(base_seconds=draw(factors)),
            gangs=GangRules(
                share=draw(shares), topology=draw(st.sampled_from(GANG_TOPOLOGIES)), kinds=tuple(kinds[:1])
            ),
            deadlines=DeadlineRules(share=draw(shares), slack_least=1.0, slack_most=draw(st.floats(1, 9))),
        ),
    )  # fmt: skip


def _kind(draw: st.DrawFn, name: str) -> WorkKind:
    return WorkKind(
        name=name,
        share=draw(factors),
        cores=tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))),
        memory_per_core=draw(st.integers(1, GIB // 4)),
        bandwidth_per_core=draw(rates),
        bandwidth_sensitivity=draw(factors),
        cache_sensitivity=draw(factors),
        pollution_per_core=draw(factors),
        data_rate=draw(st.integers(0, GB)),
        seconds_median=draw(times),
        seconds_deviation=draw(shares),
    )


def _node_class(draw: st.DrawFn, name: str, kinds: list[str]) -> NodeClass:
    return NodeClass(
        name=name,
        cores=draw(st.integers(4, 96)),
        memory=draw(amounts),
        memory_bandwidth=draw(rates),
        gpus=draw(st.integers(0, 8)),
        gpu_kind="A100",
        disk=draw(st.integers(0, 1 << 44)),
        speed=draw(st.dictionaries(st.sampled_from(kinds), factors)),
        attributes=draw(
            st.dictionaries(st.sampled_from(["zone", "rev"]), st.booleans() | st.integers(0, 9) | texts)
        ),
    )


def _cluster(
    draw: st.DrawFn, name: str, classes: list[str], kinds: list[str], regions: list[str]
) -> WorldCluster:
    runs = draw(st.lists(st.tuples(st.sampled_from(classes), st.integers(1, 30)), min_size=1, max_size=3))
    return WorldCluster(
        name=name,
        region=draw(st.sampled_from(regions)),
        nodes=tuple(NodeRun(node_class=node_class, count=count) for node_class, count in runs),
        nodes_per_rack=draw(st.integers(1, 40)),
        topology=draw(st.sampled_from(TOPOLOGIES)),
        oversubscription=draw(st.floats(0.5, 8)),
        wan=draw(rates),
        work_shares=draw(st.dictionaries(st.sampled_from(kinds), factors)),
    )
