"""Published figures of GPU studies come out; skipped with a message without the development traces."""

import os
from pathlib import Path

import pytest

from hanse.sim.baselines.gpu.invariants import check_placement, check_schedule
from hanse.sim.baselines.gpu.muri import muri_jobs, without_quirks
from hanse.sim.baselines.gpu.openb import openb_nodes, openb_pods
from hanse.sim.baselines.gpu.placement import place_pods
from hanse.sim.baselines.gpu.schedulers import GPU_SCHEDULERS
from hanse.sim.baselines.gpu.workload import GpuSettings, equal_nodes, figures
from hanse.sim.baselines.rigid.validate import MURI_CASES, MURI_POLICIES, PLACEMENT_CASES
from hanse.sim.traces import load, read_nodes

TRACES = Path(os.environ.get("HANSE_TRACES", Path(__file__).parents[4].parent / "shared" / "traces"))
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no development traces at {TRACES}")


@pytest.mark.parametrize("trace", sorted(MURI_CASES))
@pytest.mark.parametrize("policy", sorted(MURI_POLICIES))
def test_muri_with_its_quirks_is_exact(trace: str, policy: str) -> None:
    jobs = muri_jobs(load(TRACES / "muri" / f"{trace}.csv"))
    outcome = MURI_POLICIES[policy](jobs)
    mean, makespan, _ = MURI_CASES[trace][policy]
    assert float(outcome.completion(jobs).mean()) == pytest.approx(mean, abs=0.001)
    assert float(outcome.end.max()) == pytest.approx(makespan, abs=0.01)


@pytest.mark.parametrize(("policy", "tolerance"), [("srtf", 0.02), ("srsf", 0.02), ("tiresias", 0.1)])
def test_plain_schedulers_land_close(policy: str, tolerance: float) -> None:
    workload = without_quirks(muri_jobs(load(TRACES / "muri" / "trace3.csv")))
    machine = GpuSettings(equal_nodes(8, 0, 0, 8_000))
    outcome = GPU_SCHEDULERS[policy](workload, machine)
    check_schedule(workload, machine, outcome)
    mean = figures(workload, machine, outcome).completion_mean
    assert mean == pytest.approx(MURI_CASES["trace3"][policy][0], rel=tolerance)


@pytest.mark.parametrize("policy", ["random", "best-fit", "fgd"])
def test_fgd_study(policy: str) -> None:
    """One seed instead of ten, so twice the half point."""
    nodes = openb_nodes(read_nodes(TRACES / "openb" / "openb_node_list_gpu_node.csv"))
    pods = openb_pods(load(TRACES / "openb" / "openb_pod_list_default.csv.gz"), nodes)
    assert (len(nodes.cpu), nodes.gpu_capacity) == (1_213, 6_212_000)
    outcome = place_pods(pods, nodes, policy, 42)
    check_placement(pods, nodes, outcome)
    assert 100 * outcome.allocated == pytest.approx(PLACEMENT_CASES["default"][policy], abs=1.0)
