"""The placement study: the fragmentation tables against the definition, soundness, and hand-made choices."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hanse.sim.baselines.gpu.fragmentation import FragmentTables, TypicalPods, typical_pods
from hanse.sim.baselines.gpu.invariants import check_placement
from hanse.sim.baselines.gpu.openb import DEVICES_MAX, MILLI, OpenbNodes, OpenbPods, PodTypes, inflate
from hanse.sim.baselines.gpu.placement import PLACERS, FgdChooser, IdleCluster, place_pods

MODELS = ("", "A", "B")


def pods_of(*pods: tuple[int, int, int, int, int]) -> OpenbPods:
    """Pods as (cpu, memory, devices, share, model mask)."""
    shapes, index = np.unique(np.asarray(pods, np.int64), axis=0, return_inverse=True)
    return OpenbPods(PodTypes(*(np.ascontiguousarray(column) for column in shapes.T)), index.reshape(-1))


def nodes_of(*nodes: tuple[int, int, int, int]) -> OpenbNodes:
    """Nodes as (cpu, memory, devices, model)."""
    cpu, memory, devices, model = (np.asarray(column, np.int64) for column in zip(*nodes, strict=True))
    return OpenbNodes(cpu, memory, devices, model, MODELS)


shares = st.sampled_from([0, 100, 250, 460, 500, 990, 1_000])
pod = st.one_of(
    st.tuples(st.integers(0, 40), st.integers(0, 9), st.just(0), st.just(0), st.just(0)),
    st.tuples(
        st.integers(0, 40),
        st.integers(0, 9),
        st.just(1),
        st.integers(1, 1_000),
        st.sampled_from([0, 2, 4, 6]),
    ),
    st.tuples(
        st.integers(0, 40), st.integers(0, 9), st.integers(2, 8), st.just(1_000), st.sampled_from([0, 2, 4])
    ),
)
node = st.tuples(st.integers(0, 120), st.integers(0, 60), st.integers(1, 8), st.integers(1, 2))


def fragment_by_definition(typical: TypicalPods, model: int, cpu: int, idle: list[int]) -> float:
    """F as the paper defines it, pod by pod."""
    total = 0.0
    for kind in range(len(typical.cpu)):
        count, milli, mask = int(typical.count[kind]), int(typical.milli[kind]), int(typical.models[kind])
        room = sum(device >= milli for device in idle) >= count
        access = mask == 0 or bool(mask >> model & 1)
        useful = count > 0 and access and room and cpu >= int(typical.cpu[kind])
        lost = sum(device for device in idle if device < milli) if useful else sum(idle)
        total += float(typical.weight[kind]) * lost
    return total


@given(
    pods=st.lists(pod, min_size=1, max_size=12),
    model=st.integers(1, 2),
    cpu=st.integers(0, 50),
    idle=st.lists(shares, min_size=DEVICES_MAX, max_size=DEVICES_MAX),
)
@settings(max_examples=300, deadline=None)
def test_tables_give_the_measure_of_the_definition(
    pods: list[tuple[int, int, int, int, int]], model: int, cpu: int, idle: list[int]
) -> None:
    typical = typical_pods(pods_of(*pods))
    tables = FragmentTables(typical, len(MODELS))
    found = tables.node_fragment(np.asarray([model]), np.asarray([cpu]), np.asarray([idle], np.int64))[0]
    assert found == pytest.approx(fragment_by_definition(typical, model, cpu, idle), abs=1e-6)


@given(
    pods=st.lists(pod, min_size=1, max_size=20).filter(lambda pods: any(p[2] for p in pods)),
    nodes=st.lists(node, min_size=1, max_size=6),
    policy=st.sampled_from(PLACERS),
    seed=st.integers(0, 5),
)
@settings(max_examples=300, deadline=None)
def test_every_placement_is_sound(
    pods: list[tuple[int, int, int, int, int]], nodes: list[tuple[int, int, int, int]], policy: str, seed: int
) -> None:
    made, cluster = pods_of(*pods), nodes_of(*nodes)
    outcome = place_pods(made, cluster, policy, seed)
    check_placement(made, cluster, outcome)
    again = place_pods(made, cluster, policy, seed)
    assert np.array_equal(outcome.node, again.node)


@given(
    pods=st.lists(pod, min_size=1, max_size=10),
    wanted=pod,
    states=st.lists(
        st.tuples(
            st.integers(1, 2),
            st.integers(0, 60),
            st.lists(shares, min_size=DEVICES_MAX, max_size=DEVICES_MAX),
        ),
        min_size=1,
        max_size=5,
    ),
)
@settings(max_examples=300, deadline=None)
def test_fgd_takes_the_least_growth_of_fragmentation(
    pods: list[tuple[int, int, int, int, int]],
    wanted: tuple[int, int, int, int, int],
    states: list[tuple[int, int, list[int]]],
) -> None:
    typical = typical_pods(pods_of(*pods))
    types = pods_of(wanted).types
    cluster = IdleCluster(
        nodes_of(*[(cpu, 10, 8, model) for model, cpu, _ in states]), types, np.arange(len(states))
    )
    cluster.idle[:] = [idle for _, _, idle in states]
    cluster.whole[:] = (cluster.idle == MILLI).sum(axis=1)
    cluster.fullest[:] = cluster.idle.max(axis=1)
    room = cluster.feasible_nodes(0)
    assume(len(room))
    cpu, _, count, milli, _ = wanted
    expected: list[tuple[float, int, int]] = []
    for index in room.tolist():
        model, left, idle = states[index]
        before = fragment_by_definition(typical, model, left, idle)
        share = count == 1 and milli < MILLI
        for device in [d for d in range(DEVICES_MAX) if idle[d] >= milli] if share else [0]:
            after = list(idle)
            for taken in [device] if share else [d for d in range(DEVICES_MAX) if idle[d] == MILLI][:count]:
                after[taken] -= milli
            gain = before - fragment_by_definition(typical, model, left - cpu, after)
            expected.append((100 / (1 + np.exp(-gain / 1_000)), -index, -device))
    best = max((int(score + 1e-9), index, device) for score, index, device in expected)
    found = FgdChooser(FragmentTables(typical, len(MODELS)))(cluster, types, 0, room)
    assert found == (-best[1], -best[2])


def test_typical_pods_cover_the_share_asked_for() -> None:
    pods = pods_of(*[(1, 0, 1, 500, 0)] * 90, *[(2, 0, 1, 1_000, 0)] * 8, (3, 0, 0, 0, 0), (4, 0, 0, 0, 0))
    typical = typical_pods(pods)
    assert typical.cpu.tolist() == [1, 2]
    assert typical.weight.tolist() == [90 / 98, 8 / 98]


def test_inflation_reaches_the_target() -> None:
    pods = pods_of(*[(1, 0, 1, 500, 0)] * 4)
    arrivals = inflate(pods, 10_000, np.random.default_rng(1))
    assert int(pods.types.gpu[arrivals].sum()) == 10_000


def test_fgd_keeps_whole_devices_whole() -> None:
    # shares and whole devices are equally frequent: a second share goes to the device in use, on any node
    pods = pods_of(*[(1, 1, 1, 500, 0)] * 4, *[(1, 1, 1, 1_000, 0)] * 4)
    nodes = nodes_of((100, 100, 3, 1), (100, 100, 3, 1))
    assert place_pods(pods, nodes, "fgd", 3, demand=1.0).allocated == 1.0


def test_packing_and_clustering_keep_sizes_together() -> None:
    pods = pods_of(*[(1, 1, 1, 1_000, 0)] * 8, *[(1, 1, 2, 1_000, 0)] * 4)
    nodes = nodes_of(*[(100, 100, 8, 1)] * 4)
    for policy in ("gpu-packing", "gpu-clustering"):
        outcome = place_pods(pods, nodes, policy, 0, demand=0.5)
        used = {int(node) for node in outcome.node.tolist()}
        assert len(used) == 2, policy


def test_random_spreads_what_best_fit_packs() -> None:
    pods = pods_of(*[(1, 1, 1, 100, 0)] * 40)
    nodes = nodes_of(*[(100, 100, 8, 1)] * 20)
    spread = {
        policy: len(set(place_pods(pods, nodes, policy, 0, demand=0.0251).node.tolist()))
        for policy in PLACERS
    }
    assert spread["best-fit"] == spread["gpu-packing"] == 1
    assert spread["random"] > 10


def test_the_checker_sees_a_device_given_twice() -> None:
    pods = pods_of(*[(1, 1, 1, 600, 0)] * 3)
    nodes = nodes_of((10, 10, 4, 1))
    good = place_pods(pods, nodes, "best-fit", 0, demand=0.3)
    bad = type(good)(good.kind, good.node, np.zeros_like(good.device), good.allocated, 0.0)
    assert int((good.node >= 0).sum()) >= 2
    with pytest.raises(AssertionError, match="over-committed"):
        check_placement(pods, nodes, bad)
    assert nodes.gpu_capacity == 4 * MILLI


def test_fgd_does_not_break_a_pair_that_a_larger_pod_could_use() -> None:
    # to a share alone the three devices are worth the same; to a pod of two devices the first two are not
    typical = typical_pods(pods_of((1, 0, 1, 500, 0), (1, 0, 2, 1_000, 0)))
    types = pods_of((1, 0, 1, 500, 0)).types
    cluster = IdleCluster(nodes_of((50, 10, 3, 1)), types, np.arange(1))
    cluster.idle[0, 2] = 500
    chooser = FgdChooser(FragmentTables(typical, len(MODELS)))
    assert chooser(cluster, types, 0, cluster.feasible_nodes(0)) == (0, 2)
