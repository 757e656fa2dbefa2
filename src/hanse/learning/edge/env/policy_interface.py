"""Interface of policies: the columns that clusters see and answer with, over many episodes at once.

Axes, always in this order: ``E`` episodes (a live warden has one), ``N`` clusters, ``P`` pending slots per
cluster, ``R`` running slots per cluster. Resources are whole CPUs (index 0) and whole GPUs (index 1); time is
in steps.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NONE: Final = -1
"""Empty pending or running slot, and the slot of a cluster that passes."""

CLUSTERS_MAX: Final = 62
"""Largest league: reach is a bit set in a signed 64-bit integer; a larger league is split into regions."""


class EdgeView(msgspec.Struct, frozen=True, eq=False):
    """State that policies may see: no progress, no future, only what a warden knows."""

    time: Ints
    """(E,) steps since the start."""
    free: Ints
    """(E, N, 2) CPUs and GPUs free now."""
    capacity: Ints
    """(N, 2) CPUs and GPUs in all."""
    queued: Ints
    """(E, N) tasks that wait behind the pending slots."""
    can_act: Flags
    """(E, N) false where the cluster has passed for this time step, or the episode has ended."""
    task: Ints
    """(E, N, P) task in each pending slot, ``NONE`` where empty. The same task may be pending at several."""
    kind: Ints
    """(E, N, P) kind of that task (row of the duration table); 0 where empty."""
    waited: Ints
    """(E, N, P) steps since that task arrived; 0 where empty."""
    reach: Ints
    """(E, N, P) bit set of the clusters that can run that task; 0 where empty."""
    due: Ints
    """(E, N, P) steps left until that task's deadline; ``NO_DEADLINE`` where it has none."""
    run_task: Ints
    """(E, N, R) running task, ``NONE`` where the slot is empty."""
    run_kind: Ints
    """(E, N, R) its kind."""
    run_cpus: Ints
    """(E, N, R) CPUs it holds."""
    run_gpus: Ints
    """(E, N, R) GPUs it holds."""
    run_elapsed: Ints
    """(E, N, R) steps since it started."""


NO_DEADLINE: Final = 1 << 30
"""Steps left for a task without a deadline."""


class Choice(msgspec.Struct, frozen=True, eq=False):
    """Answer per episode and cluster: a pending slot and a size, or a pass."""

    slot: Ints
    """(E, N) pending slot, ``NONE`` to pass."""
    cpus: Ints
    """(E, N) CPUs to give; ignored for a pass."""
    gpus: Ints
    """(E, N) GPUs to give; ignored for a pass."""
    preference: Floats
    """(E, N) log-probability of the chosen slot given the cluster, for the conflict rule; 0 for rules."""


def all_pass(episodes: int, clusters: int) -> Choice:
    """Return a choice in which every cluster passes."""
    shape = (episodes, clusters)
    return Choice(
        slot=np.full(shape, NONE, dtype=np.int64),
        cpus=np.zeros(shape, dtype=np.int64),
        gpus=np.zeros(shape, dtype=np.int64),
        preference=np.zeros(shape),
    )


def reach_flags(reach: Ints, clusters: int) -> Flags:
    """Unpack bit sets of clusters into flags on a new last axis."""
    return np.asarray((reach[..., None] >> np.arange(clusters)) & 1 == 1)
