"""GPU and multi-resource schedulers: hand-made cases, and what must hold whatever the workload."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse.sim.baselines.gpu.invariants import check_schedule
from hanse.sim.baselines.gpu.muri import MuriJob, muri_srtf, muri_tiresias, overhead
from hanse.sim.baselines.gpu.schedulers import GPU_SCHEDULERS
from hanse.sim.baselines.gpu.workload import (
    GPU,
    NOT_RUN,
    GpuOutcome,
    GpuSettings,
    GpuWorkload,
    equal_nodes,
    figures,
    from_chunk,
    gpu_workload,
)
from hanse.sim.traces.chunk import JobChunk

SECOND = 1_000_000


def made(*jobs: tuple[int, int, int], per_node: int = 4) -> GpuWorkload:
    """Jobs as (submit, work, GPUs) in seconds."""
    submit, work, gpus = (np.asarray(column, np.int64) for column in zip(*jobs, strict=True))
    return gpu_workload(submit * SECOND, work * SECOND, gpus, per_node)


def cluster(nodes: int = 2, per_node: int = 4, restart: int = 0) -> GpuSettings:
    return GpuSettings(equal_nodes(nodes, 0, 0, per_node * 1_000), restart=restart * SECOND)


def vectors(*jobs: tuple[int, int, tuple[int, int, int], int, int]) -> GpuWorkload:
    """Jobs as (submit, work, demand of a piece, pieces, user); times in seconds."""
    submit, work, demand, pieces, user = zip(*jobs, strict=True)
    wants = np.asarray(demand, np.int64)
    return GpuWorkload(
        np.asarray(submit, np.int64) * SECOND,
        np.asarray(work, np.int64) * SECOND,
        np.asarray(pieces, np.int64),
        wants,
        np.zeros_like(wants),
        np.asarray(user, np.int64),
    )


def starts(outcome: GpuOutcome) -> list[int]:
    return [value // SECOND if value >= 0 else value for value in outcome.start.tolist()]


def ends(outcome: GpuOutcome) -> list[int]:
    return [value // SECOND if value >= 0 else value for value in outcome.end.tolist()]


training = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 13)), min_size=1, max_size=25
).map(lambda jobs: made(*sorted(jobs)))
mixed = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 20),
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)),
        st.integers(1, 4),
        st.integers(-1, 2),
    ),
    min_size=1,
    max_size=20,
).map(lambda jobs: vectors(*sorted(jobs)))


@given(workload=training, name=st.sampled_from(sorted(GPU_SCHEDULERS)), restart=st.integers(0, 3))
@settings(max_examples=300, deadline=None)
def test_every_schedule_of_training_jobs_is_sound(workload: GpuWorkload, name: str, restart: int) -> None:
    machine = cluster(3, restart=restart)
    check_schedule(workload, machine, GPU_SCHEDULERS[name](workload, machine))


@given(workload=mixed, name=st.sampled_from(sorted(GPU_SCHEDULERS)))
@settings(max_examples=300, deadline=None)
def test_every_schedule_of_vector_jobs_is_sound(workload: GpuWorkload, name: str) -> None:
    machine = GpuSettings(np.asarray([[4, 4, 4], [6, 3, 2]], np.int64), queue_limits=(3 * SECOND, 9 * SECOND))
    check_schedule(workload, machine, GPU_SCHEDULERS[name](workload, machine))


def test_jobs_are_cut_to_node_size() -> None:
    workload = made((0, 1, 3), (0, 1, 4), (0, 1, 10))
    assert workload.pieces.tolist() == [1, 1, 2]
    assert workload.demand[:, GPU].tolist() == [3_000, 4_000, 4_000]
    assert workload.rest[:, GPU].tolist() == [0, 0, 2_000]


def test_fifo_blocks_and_best_fit_passes_over() -> None:
    workload = made((0, 10, 6), (1, 10, 8), (2, 3, 2))
    assert starts(GPU_SCHEDULERS["fifo"](workload, cluster())) == [0, 10, 20]
    assert starts(GPU_SCHEDULERS["best-fit"](workload, cluster())) == [0, 10, 2]


def test_sjf_takes_the_shortest_and_never_interrupts() -> None:
    workload = made((0, 10, 8), (1, 5, 8), (2, 3, 8))
    outcome = GPU_SCHEDULERS["sjf"](workload, cluster())
    assert starts(outcome) == [0, 13, 10]
    assert outcome.preemptions == 0


def test_srtf_interrupts_for_less_work_left() -> None:
    workload = made((0, 10, 8), (1, 5, 8), (2, 3, 8))
    outcome = GPU_SCHEDULERS["srtf"](workload, cluster())
    assert ends(outcome) == [18, 9, 5]
    assert outcome.preemptions == 2


def test_a_restart_costs_time() -> None:
    workload = made((0, 10, 8), (1, 5, 8))
    assert ends(GPU_SCHEDULERS["srtf"](workload, cluster(restart=2))) == [20, 8]


def test_srsf_weighs_work_by_gpus() -> None:
    workload = made((0, 4, 8), (0, 6, 4), (0, 6, 4))
    assert starts(GPU_SCHEDULERS["srtf"](workload, cluster())) == [0, 4, 4]
    assert starts(GPU_SCHEDULERS["srsf"](workload, cluster())) == [6, 0, 0]


def test_tiresias_puts_a_job_back_when_it_had_its_share() -> None:
    workload = made((0, 10_000, 1), (100, 60, 1), per_node=1)
    machine = GpuSettings(equal_nodes(1, 0, 0, 1_000), queue_limits=(3_000 * SECOND,))
    # the first job holds the GPU until 3,000 GPU-seconds, then the newcomer passes
    outcome = GPU_SCHEDULERS["tiresias"](workload, machine)
    assert starts(outcome) == [0, 3_000]
    assert ends(outcome) == [10_060, 3_060]


def test_drf_serves_the_user_with_the_smaller_dominant_share() -> None:
    # user 0 wants CPU, user 1 memory; one node of 9 CPU and 18 memory, as in the paper's example
    first, second = (1, 4, 0), (3, 1, 0)
    workload = vectors(*[(0, 10, first, 1, 0)] * 5, *[(0, 10, second, 1, 1)] * 5)
    outcome = GPU_SCHEDULERS["drf"](workload, GpuSettings(np.asarray([[9, 18, 0]], np.int64)))
    now = [job for job, start in enumerate(starts(outcome)) if start == 0]
    assert (sum(job < 5 for job in now), sum(job >= 5 for job in now)) == (3, 2)


def test_tetris_prefers_the_job_that_aligns_with_what_is_idle() -> None:
    # idle: much CPU, little memory; both jobs are equally large and long
    workload = vectors((0, 5, (2, 6, 0), 1, 0), (0, 5, (6, 2, 0), 1, 0))
    machine = GpuSettings(np.asarray([[7, 6, 0], [8, 8, 0]], np.int64))
    busy = vectors((0, 50, (8, 8, 0), 1, 0), (1, 5, (2, 6, 0), 1, 0), (1, 5, (6, 2, 0), 1, 0))
    assert starts(GPU_SCHEDULERS["tetris"](workload, machine)) == [0, 0]
    assert starts(GPU_SCHEDULERS["tetris"](busy, machine)) == [0, 6, 1]
    assert starts(GPU_SCHEDULERS["fifo"](busy, machine)) == [0, 1, 6]


def test_a_job_no_empty_cluster_can_hold_is_refused() -> None:
    workload = made((0, 5, 9), (0, 5, 8))
    for name, policy in GPU_SCHEDULERS.items():
        outcome = policy(workload, cluster())
        assert starts(outcome) == [NOT_RUN, 0], name
        assert outcome.refused == 1
        assert figures(workload, cluster(), outcome).makespan == 5.0


def test_chunks_become_gangs_or_consolidated_jobs() -> None:
    small = np.full(1, -1, np.int32)
    ten = np.full(10, 7 * SECOND, np.int64)
    chunk = JobChunk(
        job=np.zeros(1, np.int64),
        arrival=np.zeros(1, np.int64),
        offset=np.asarray([0, 10], np.int64),
        duration=ten,
        cpu=np.asarray([2_000], np.int64),
        memory=np.asarray([10], np.int64),
        gpu=np.asarray([1_000], np.int64),
        estimate=np.zeros(1, np.int64),
        user=small,
        group=small,
        site=small,
        parent=np.zeros(1, np.int64),
    )
    gang = from_chunk(chunk)
    assert (gang.pieces.tolist(), gang.demand.tolist()) == ([10], [[2_000, 10, 1_000]])
    packed = from_chunk(chunk, consolidate_gpus=4)
    assert (packed.pieces.tolist(), packed.demand.tolist()) == ([2], [[8_000, 40, 4_000]])
    assert packed.rest.tolist() == [[4_000, 20, 2_000]]
    assert packed.total().tolist() == gang.total().tolist()


def test_the_checker_sees_faults() -> None:
    workload, machine = made((0, 10, 8), (0, 10, 8)), cluster()
    good = GPU_SCHEDULERS["fifo"](workload, machine)
    where = ((0, 0), (1, 0))
    both = np.zeros(2, np.int64)
    until = both + 10 * SECOND
    twice = GpuOutcome(both, until, np.arange(2), both, until, (where, where), 0, 0, 0)
    with pytest.raises(AssertionError, match="over-committed"):
        check_schedule(workload, machine, twice)
    short = GpuOutcome(
        good.start,
        good.end - 1,
        good.stretch_job,
        good.stretch_begin,
        good.stretch_end - 1,
        good.stretch_where,
        0,
        0,
        0,
    )
    with pytest.raises(AssertionError, match="whole work"):
        check_schedule(workload, machine, short)


def test_the_quirk_charges_every_running_job_at_every_event() -> None:
    jobs = [MuriJob(0.0, 1, 100, 1.0, 10.0), MuriJob(50.0, 1, 10, 1.0, 10.0)]
    # at 50 and at 60 the first job is credited with 10 seconds less than it ran (0 of the 10 between the two)
    outcome = muri_srtf(jobs, nodes=1, per_node=2)
    assert outcome.end.tolist() == [120.0, 60.0]
    assert muri_tiresias(jobs, nodes=1, per_node=2).end.tolist() == [120.0, 60.0]
    assert (overhead("a2c", 8), overhead("unheard-of", 1)) == (46.0, 10.0)
