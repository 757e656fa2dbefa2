"""Invariants of every schedule of rigid jobs; a violation is a bug of ours and fails an assertion."""

import numpy as np

from hanse.sim.baselines.rigid.workload import NOT_RUN, RigidOutcome, RigidSettings, RigidWorkload


def check_schedule(workload: RigidWorkload, settings: RigidSettings, outcome: RigidOutcome) -> None:
    """Check that every job that fits runs once, whole, after its arrival, and no processor is held twice."""
    ran = outcome.start != NOT_RUN
    fits = workload.processors <= settings.processors
    assert bool(np.array_equal(ran, fits)), "every job the machine can hold runs, and no other"
    assert outcome.refused == int((~fits).sum())
    assert bool(np.all(outcome.start[ran] >= workload.submit[ran])), "no job starts before its arrival"
    assert bool(np.array_equal((outcome.end - outcome.start)[ran], workload.run[ran])), "every job runs whole"
    assert peak_use(workload, outcome) <= settings.processors, "no processor is held twice"


def peak_use(workload: RigidWorkload, outcome: RigidOutcome) -> int:
    """Return the most processors held at any instant; a job that ends at an instant holds nothing at it."""
    ran = np.flatnonzero(outcome.start != NOT_RUN)
    if not len(ran):
        return 0
    width = workload.processors[ran]
    times = np.concatenate([outcome.start[ran], outcome.end[ran]])
    change = np.concatenate([width, -width])
    order = np.lexsort((change, times))
    return int(np.cumsum(change[order]).max())


def check_promises(outcome: RigidOutcome) -> None:
    """Check that no job starts later than first promised; true if estimates are upper bounds and the order
    is by arrival."""
    promised = (outcome.promise >= 0) & (outcome.start != NOT_RUN)
    late = outcome.start[promised] > outcome.promise[promised]
    assert not bool(late.any()), f"{int(late.sum())} jobs start later than promised"
