"""Differences between two outcomes of one run, for tests of the compiled league against the machines."""

from typing import Final

import numpy as np

from hanse.sim.replay.run_records import ReplayOutcome

COLUMNS: Final = ("start", "node", "job_end")
COUNTS: Final = (
    "launches", "messages", "rejects", "substitutions", "heartbeats", "complete", "grants", "releases",
)  # fmt: skip


def describe_difference(one: ReplayOutcome, other: ReplayOutcome) -> str:
    """Return the first task or job that differs, and all counts that do; empty if the outcomes are equal.
    The times of decisions and the engine differ between equal runs and are ignored; the number of decisions
    is not."""
    differences = []
    for field in COLUMNS:
        left, right = getattr(one, field), getattr(other, field)
        if len(left) != len(right):
            differences.append(f"{field} has {len(left)} and {len(right)} entries")
        elif not np.array_equal(left, right):
            at = int(np.flatnonzero(left != right)[0])
            differences.append(f"{field}[{at}] is {left[at]} and {right[at]}")
    counts = [(field, getattr(one, field), getattr(other, field)) for field in COUNTS]
    differences += [f"{field} is {left} and {right}" for field, left, right in counts if left != right]
    if len(one.decision_ns) != len(other.decision_ns):
        differences.append(f"{len(one.decision_ns)} and {len(other.decision_ns)} jobs were decided on")
    return "; ".join(differences)
