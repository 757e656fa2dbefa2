"""Nodes on which tasks finish first: the two kernels against each other, and what they promise."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.policy.kernels import BACKEND, FinishColumns, FinishJob, c_finish, numpy_finish

native = pytest.mark.skipif(BACKEND != "native", reason="the compiled kernels are not built")


def make_columns(seed: int, nodes: int, classes: int = 4, racks: int = 5) -> FinishColumns:
    rng = np.random.default_rng(seed)
    free = np.stack([rng.integers(0, 9, nodes), rng.integers(0, 9, nodes), rng.integers(0, 3, nodes)])
    rack = np.sort(rng.integers(0, racks, nodes))
    kinds = rng.integers(0, classes, nodes)
    kinds[nodes // 2 :] = np.sort(kinds[nodes // 2 :])
    columns = FinishColumns(kinds.tolist(), rack.tolist(), free.astype(np.int64))
    columns.pressure[:] = rng.choice([0.0, 1.0, rng.random()], nodes)
    columns.exposure[:] = rng.choice([0.0, 7.0, rng.random() * 50], nodes)
    columns.room[:] = 1.0 / (1.0 + kinds)
    return columns


def make_job(
    seed: int, count: int, finish_max: float = inf, each_max: int = 0, debit: bool = True
) -> FinishJob:
    rng = np.random.default_rng(seed)
    alone = np.where(rng.random(4) < 0.2, -1.0, rng.integers(1, 5, 4) * 10.0)
    transfer = np.where(rng.random(5) < 0.2, -1.0, rng.integers(0, 3, 5) * 5.0)
    ask = rng.integers(0, 3, 3).tolist()
    return FinishJob(
        count, ask[0], ask[1], ask[2], alone, transfer, rng.random(5), float(rng.random()),
        float(rng.random()), float(rng.random() * 9), float(rng.integers(0, 2)), finish_max, each_max, debit,
    )  # fmt: skip


def state(columns: FinishColumns) -> list[bytes]:
    return [each.tobytes() for each in (columns.free, columns.pressure, columns.exposure)]


@native
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 90), st.integers(0, 60), st.sampled_from([inf, 30.0, 12.0]),
       st.integers(0, 2), st.booleans())  # fmt: skip
def test_the_two_kernels_are_equal_to_the_bit(
    seed: int, nodes: int, count: int, finish_max: float, each_max: int, debit: bool
) -> None:
    ours, twins = make_columns(seed, nodes), make_columns(seed, nodes)
    job = make_job(seed + 1, count, finish_max, each_max, debit)
    assert c_finish.finish_costs(ours, job).tobytes() == numpy_finish.finish_costs(twins, job).tobytes()
    assert c_finish.finish_ideal(ours, job) == numpy_finish.finish_ideal(twins, job)
    assert c_finish.finish_choose(ours, job) == numpy_finish.finish_choose(twins, job)
    assert state(ours) == state(twins)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 30), st.integers(0, 2))
def test_what_is_chosen_fits_and_is_the_cheapest_each_time(
    seed: int, nodes: int, count: int, each_max: int
) -> None:
    columns, twins = make_columns(seed, nodes), make_columns(seed, nodes)
    job = make_job(seed + 1, count, each_max=each_max)
    chosen, costs = numpy_finish.finish_choose(columns, job)
    assert (columns.free >= 0).all()
    one = FinishJob(1, job.cpu, job.memory, job.gpu, job.class_seconds, job.rack_seconds, job.slopes,
                    job.sensitivity, job.own_pressure, job.own_exposure, job.charge)  # fmt: skip
    for node, cost in zip(chosen, costs, strict=True):
        if each_max:  # the bound of one call is not that of several
            break
        assert numpy_finish.finish_choose(twins, one)[0] == [node]
        assert cost >= numpy_finish.finish_ideal(twins, one)
    if each_max:
        assert max(np.bincount(chosen), default=0) <= each_max


def test_a_fast_class_near_data_or_an_empty_node_wins_and_ties_go_to_the_lowest() -> None:
    def first(alone: list[float], transfer: list[float], pressure: list[float], exposure: list[float]) -> int:
        columns = FinishColumns([0, 1, 1], [0, 1, 2], np.full((3, 3), 9, dtype=np.int64))
        columns.pressure[:], columns.exposure[:] = pressure, exposure
        slopes = np.array([1.0, 0, 0, 0, 0])
        job = FinishJob(1, 1, 1, 0, np.array(alone, float), np.array(transfer, float), slopes, 1.0, 0.5)
        return numpy_finish.finish_choose(columns, job)[0][0]

    free = [0.0, 0.0, 0.0]
    assert first([10, 10], [0, 0, 0], free, free) == 0
    assert first([10, 9], [0, 0, 0], free, free) == 1
    assert first([10, 9], [0, 2, 2], free, free) == 0
    assert first([10, 10], [0, 0, 0], [1, 1, 0], free) == 2
    assert first([10, 10], [0, 0, 0], free, [5, 5, 0]) == 2
    assert first([-1, 10], [0, -1, 0], free, free) == 2


def test_nodes_on_which_a_task_takes_too_long_are_refused() -> None:
    columns = FinishColumns([0, 1], [0, 0], np.full((3, 2), 9, dtype=np.int64))
    job = FinishJob(4, 4, 1, 0, np.array([10.0, 14.0]), np.zeros(1), np.zeros(5), finish_max=13.0)
    assert numpy_finish.finish_choose(columns, job)[0] == [0, 0]
