"""Differences between two outcomes of one run, for tests of the compiled league against the machines."""

from typing import Final

import numpy as np

from hanse.sim.replay.records import Outcome

COLUMNS: Final = ("start", "node", "job_end")
COUNTS: Final = (
    "launches", "messages", "rejects", "substitutions", "heartbeats", "complete", "grants", "releases",
)  # fmt: skip


def difference(one: Outcome, other: Outcome) -> str:
    """Return the first task or job that differs, and all counts that do; empty if the outcomes are equal.
    The times of decisions and the engine differ between equal runs and are ignored; the number of decisions
    is not."""
    found = []
    for field in COLUMNS:
        ours, theirs = getattr(one, field), getattr(other, field)
        if len(ours) != len(theirs):
            found.append(f"{field} has {len(ours)} and {len(theirs)} entries")
        elif not np.array_equal(ours, theirs):
            at = int(np.flatnonzero(ours != theirs)[0])
            found.append(f"{field}[{at}] is {ours[at]} and {theirs[at]}")
    counts = [(field, getattr(one, field), getattr(other, field)) for field in COUNTS]
    found += [f"{field} is {ours} and {theirs}" for field, ours, theirs in counts if ours != theirs]
    if len(one.decision_ns) != len(other.decision_ns):
        found.append(f"{len(one.decision_ns)} and {len(other.decision_ns)} jobs were decided on")
    return "; ".join(found)
