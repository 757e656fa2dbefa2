"""Demand for slots over time, against counting by hand."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.sim.traces.chunk import SECOND, JobChunk, empty_chunk
from hanse.sim.traces.slot_demand import BUCKETS, SlotDemand


def chunk_of(jobs: list[tuple[int, list[int]]]) -> JobChunk:
    """A chunk of arrivals and durations in microseconds."""
    zero, none = np.zeros(len(jobs), np.int64), np.full(len(jobs), -1, np.int32)
    counts = [len(durations) for _, durations in jobs]
    return msgspec.structs.replace(
        empty_chunk(),
        job=np.arange(len(jobs)),
        arrival=np.array([at for at, _ in jobs], np.int64),
        offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        duration=np.array([one for _, durations in jobs for one in durations], np.int64),
        cpu=zero, memory=zero, gpu=zero, estimate=zero, user=none, group=none, site=none, parent=zero,
    )  # fmt: skip


def test_a_constant_demand_is_the_same_everywhere() -> None:
    demand = SlotDemand()
    demand.add(chunk_of([(at * SECOND, [SECOND] * 3) for at in range(100)]))
    found = demand.as_dict(0, 99 * SECOND)
    assert found is not None
    assert found["buckets"] == pytest.approx([3.0] * BUCKETS)
    assert found["mean"] == pytest.approx(3.0)
    assert found["max"] == pytest.approx(3.0)
    assert found["bucket_seconds"] == pytest.approx(99 / 20)


def test_a_peak_stands_in_its_bucket() -> None:
    demand = SlotDemand()
    demand.add(chunk_of([(0, [1]), (500 * SECOND, [10 * SECOND] * 40), (1_000 * SECOND, [1])]))
    found = demand.as_dict(0, 1_000 * SECOND)
    assert found is not None
    assert found["buckets"][10] == pytest.approx(40 * 10 / 50, rel=0.05)
    assert sum(found["buckets"][:10]) + sum(found["buckets"][11:]) == pytest.approx(0.0, abs=0.1)
    assert found["max"] == pytest.approx(40.0)


def test_no_span_has_no_demand() -> None:
    assert SlotDemand().as_dict(0, 0) is None


jobs = st.lists(
    st.tuples(st.integers(0, 10**9), st.lists(st.integers(0, 10**8), min_size=1, max_size=4)),
    min_size=2,
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(jobs, st.integers(1, 5))
def test_the_work_within_the_span_is_all_there(rows: list[tuple[int, list[int]]], chunks: int) -> None:
    """In any number of chunks the sum over the buckets is the work between the first and the last arrival."""
    demand = SlotDemand()
    for part in range(chunks):
        demand.add(chunk_of(rows[part::chunks]))
    first, last = min(at for at, _ in rows), max(at for at, _ in rows)
    found = demand.as_dict(first, last)
    if found is None:
        assert first == last
        return
    inside = sum(max(0, min(last, at + one) - at) for at, durations in rows for one in durations)
    # work is known exactly at the borders of spans; the two at the ends are cut by a line
    slack = 2 * found["max_span_seconds"] * SECOND * sum(len(durations) for _, durations in rows) + 1
    assert found["mean"] * (last - first) == pytest.approx(inside, abs=slack)
    assert found["max"] + 1e-6 >= max(found["buckets"]) - 1e-6
