"""What the network is shown of a broker's state, and what becomes of its answer."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.core.broker.elastic.advice_request import CLUSTERS_SHOWN_MAX
from hanse.learning.edge.env.policy_interface import CLUSTERS_MAX
from hanse.learning.edge.network import advice
from hanse.learning.edge.network.advice import CALLS_MAX, SLOTS_MAX, UnitScale, advise
from hanse.learning.edge.network.network import EdgeNetwork, choose_by_network
from hanse.learning.edge.network.network_file import load_network, shipped_path
from hanse.model.advice import (
    Advice,
    AdviceRequest,
    ClusterCapacity,
    HeldResources,
    SizeEstimate,
    WaitingGroup,
)
from hanse.model.ids import SECOND, JobId


def shipped() -> EdgeNetwork:
    loaded = load_network(shipped_path())
    assert not isinstance(loaded, str)
    return loaded[0]


NETWORK = shipped()


def cpu_ladder(parallel: float, *cpus: int, work: int = 8 * SECOND) -> tuple[SizeEstimate, ...]:
    """Sizes of a work of which this share gains from more CPUs."""
    least = cpus[0]
    return tuple(SizeEstimate(cpu, 0, int(work * (1 - parallel + parallel * least / cpu))) for cpu in cpus)


def gpu_ladder(parallel: float, work: int = 20 * SECOND) -> tuple[SizeEstimate, ...]:
    return tuple(
        SizeEstimate(cpu, gpu, int(work * (1 - parallel + parallel / gpu)))
        for gpu in (1, 2, 4, 8)
        for cpu in (2_000, 4_000)
    )


def group(
    job: int, sizes: tuple[SizeEstimate, ...], count: int = 1, reach: tuple[int, ...] = (0,)
) -> WaitingGroup:
    return WaitingGroup(JobId(job), 0, count, 0, sizes, reach)


def room(name: str, cpu: int, gpu: int = 0, free: tuple[int, int] | None = None) -> ClusterCapacity:
    return ClusterCapacity(name, (cpu, gpu), (cpu, gpu) if free is None else free, (cpu, gpu))


def one(seen: AdviceRequest) -> Advice:
    (advice,) = advise(NETWORK, seen)
    return advice


def test_work_that_gains_gets_more_than_work_that_does_not() -> None:
    cpus = (500, 1_000, 2_000, 4_000)
    for ladder, amount in ((lambda p: cpu_ladder(p, *cpus), "cpu"), (gpu_ladder, "gpu")):
        rooms = (room("c1", 16_000, 8),)
        gains = one(AdviceRequest(rooms, (group(1, ladder(0.98)),), ()))
        not_so = one(AdviceRequest(rooms, (group(1, ladder(0.0)),), ()))
        assert getattr(gains, amount) > getattr(not_so, amount)
        assert getattr(not_so, amount) == getattr(ladder(0.0)[0], amount)


def test_groups_of_many_share_the_room() -> None:
    rooms = (room("c1", 8_000, 8),)
    alone = one(AdviceRequest(rooms, (group(1, gpu_ladder(0.95)),), ()))
    many = advise(
        NETWORK, AdviceRequest(rooms, tuple(group(n, gpu_ladder(0.95), 4) for n in range(1, 5)), ())
    )
    assert {advice.job for advice in many} == {1, 2, 3, 4}
    assert sum(advice.gpu for advice in many) / len(many) <= alone.gpu


def test_what_is_full_is_asked_about_as_it_will_be() -> None:
    held = (HeldResources(0, 4_000, 0, SECOND, 2 * SECOND),)
    full = AdviceRequest(
        (room("c1", 4_000, free=(0, 0)),), (group(1, cpu_ladder(0.9, 500, 1_000, 2_000)),), held
    )
    assert one(full).cluster == "c1"
    unknown = msgspec.structs.replace(full, held=())  # others hold it: nothing is known of their ends
    assert one(unknown).cluster == "c1"


def test_only_clusters_that_a_group_reaches_are_named() -> None:
    rooms = (room("c1", 16_000, 16), room("c2", 4_000, 4))
    assert one(AdviceRequest(rooms, (group(1, gpu_ladder(0.9), reach=(1,)),), ())).cluster == "c2"
    assert advise(NETWORK, AdviceRequest(rooms, (group(1, gpu_ladder(0.9), reach=()),), ())) == ()
    assert advise(NETWORK, AdviceRequest(rooms, (), ())) == ()


def test_no_size_is_larger_than_a_node() -> None:
    many_nodes = ClusterCapacity("c1", (64_000, 64), (64_000, 64), (4_000, 2))
    assert one(AdviceRequest((many_nodes,), (group(1, gpu_ladder(0.99)),), ())).gpu <= 2


def test_a_request_has_no_more_clusters_than_a_set_of_them_has_bits() -> None:
    assert CLUSTERS_SHOWN_MAX <= CLUSTERS_MAX


def test_amounts_are_counted_from_the_least() -> None:
    cpus = UnitScale(gpus=False, unit=50, step=1.0)
    assert cpus.amount((400, 0)) == (1, 8)
    assert cpus.room((430, 0))[1] == 8
    gpus = UnitScale(gpus=True, unit=2_000, step=1.0)
    assert gpus.amount((8_000, 3)) == (4, 3)
    assert gpus.room((7_999, 3)) == (3, 3)


sizes_drawn = st.one_of(
    st.builds(cpu_ladder, st.floats(0, 1), st.integers(1, 700), st.integers(700, 30_000)),
    st.builds(gpu_ladder, st.floats(0, 1)),
    st.just(
        (SizeEstimate(0, 0, 1), SizeEstimate(1_000, 0, 1), SizeEstimate(0, 1, 1), SizeEstimate(1_000, 1, 1))
    ),
    st.just((SizeEstimate(1, 0, 1), SizeEstimate(1 << 40, 0, 1 << 60))),
)


@st.composite
def observations(draw: st.DrawFn) -> AdviceRequest:
    amounts = st.tuples(st.sampled_from((0, 300, 4_000, 1 << 40)), st.sampled_from((0, 1, 16, 4_000)))
    rooms = []
    for number in range(draw(st.integers(1, 5))):
        capacity = draw(amounts)
        free = tuple(draw(st.integers(0, most)) for most in capacity)
        rooms.append(ClusterCapacity(f"c{number}", capacity, (free[0], free[1]), draw(amounts)))
    positions = st.integers(0, len(rooms) - 1)
    waiting = [
        WaitingGroup(
            JobId(number), draw(st.integers(0, 3)), draw(st.integers(1, 10**6)),
            draw(st.integers(0, 1 << 60)), draw(sizes_drawn), tuple(sorted(draw(st.sets(positions)))),
        )
        for number in range(draw(st.integers(0, 12)))
    ]  # fmt: skip
    held = draw(
        st.lists(
            st.builds(
                HeldResources,
                positions,
                st.integers(0, 1 << 40),
                st.integers(0, 64),
                st.integers(0, 1 << 60),
                st.integers(1, 1 << 60),
            ),
            max_size=12,
        )
    )
    return AdviceRequest(tuple(rooms), tuple(waiting), tuple(held))


@settings(max_examples=60, deadline=None)
@given(seen=observations())
def test_whatever_is_shown_the_answer_makes_sense_and_is_the_same_again(seen: AdviceRequest) -> None:
    advice = advise(NETWORK, seen)
    assert advise(NETWORK, seen) == advice
    groups = {(group.job, group.group): group for group in seen.waiting}
    names = {room.cluster: number for number, room in enumerate(seen.clusters)}
    assert len({(one.job, one.group) for one in advice}) == len(advice)
    for one in advice:
        asked = groups[one.job, one.group]
        assert (one.cpu, one.gpu) in [(size.cpu, size.gpu) for size in asked.sizes]
        assert names[one.cluster] in asked.eligible_clusters


def test_the_work_for_one_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(*given: object) -> object:
        nonlocal calls
        calls += 1
        return choose_by_network(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(advice, "choose_by_network", counted)
    held = tuple(HeldResources(0, 100, 0, 0, SECOND * n) for n in range(1, 65))
    groups = tuple(group(n, cpu_ladder(0.9, 500, 1_000, 2_000), 1_000) for n in range(1, 33))
    answer = advise(NETWORK, AdviceRequest((room("c1", 6_400, free=(0, 0)),), groups, held))
    assert 0 < calls <= CALLS_MAX
    assert 0 < len(answer) <= SLOTS_MAX


def test_a_file_that_is_no_network_is_refused_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, about=np.frombuffer(b'{"format": 1}', dtype=np.uint8))
    told = load_network(path)
    assert isinstance(told, str)
    assert "format 1" in told
