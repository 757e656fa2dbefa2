"""Published figures of batch logs come out; skipped with a message without the development traces."""

import os
from pathlib import Path

import pytest

from hanse.sim.baselines.rigid.invariants import check_promises, check_schedule
from hanse.sim.baselines.rigid.schedulers import RIGID_SCHEDULERS
from hanse.sim.baselines.rigid.validate import RIGID_CASES, RigidCase
from hanse.sim.baselines.rigid.workload import RigidSettings, figures, from_chunk
from hanse.sim.traces import load

TRACES = Path(os.environ.get("HANSE_TRACES", Path(__file__).parents[4].parent / "shared" / "traces"))
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no development traces at {TRACES}")


@pytest.mark.parametrize(
    "case", RIGID_CASES, ids=lambda case: f"{case.trace}-{case.policy}-{case.width}-{case.kill}"
)
def test_published_figures(case: RigidCase) -> None:
    workload = from_chunk(load(TRACES / "swf" / f"{case.trace}.swf.gz"), case.width, kill=case.kill)
    machine = RigidSettings(case.processors)
    outcome = RIGID_SCHEDULERS[case.policy](workload, machine)
    check_schedule(workload, machine, outcome)
    found = figures(workload, outcome, case.processors)
    tolerance = 0.01 if case.policy == "easy" else 0.005
    for key, published in case.published.items():
        assert getattr(found, key) == pytest.approx(published, rel=tolerance), key


def test_backfilling_keeps_its_promises_on_a_real_log() -> None:
    workload = from_chunk(load(TRACES / "swf" / "kth_sp2_1996.swf.gz"), "requested")
    assert workload.job_count == 28_475
    waits = {}
    for name in ("fcfs", "easy", "conservative"):
        outcome = RIGID_SCHEDULERS[name](workload, RigidSettings(100))
        check_schedule(workload, RigidSettings(100), outcome)
        check_promises(outcome)
        waits[name] = figures(workload, outcome, 100).wait_mean
    assert waits["easy"] < waits["conservative"] < waits["fcfs"]
