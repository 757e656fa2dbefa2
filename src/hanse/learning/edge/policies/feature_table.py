"""Table of the task features that depend only on kind and free room; made once per rule.

A module of its own because the rule holds the table.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hanse.learning.edge.env.policy_interface import Floats, Ints

Singles = NDArray[np.float32]

SIZES_MAX: Final = 16
"""Largest CPUs and GPUs of a task that the heads can choose; the least is 1."""

TABLE_FEATURES: Final = 9
RULE_GPUS_COLUMN: Final = 6
RULE_CPUS_COLUMN: Final = 7
"""Columns that hold the rule's size for the task, in units of ``SIZES_MAX``; 0: nothing fits."""

_PROBES: Final = (1, 2, 4, 8, 16)
"""GPUs at which a task's believed duration is encoded."""

_STEPS_UNKNOWN: Final = 20.0
"""Steps encoded where a task would never end."""


def make_feature_table(durations: Floats, cpus: Ints, gpus: Ints) -> Singles:
    """Return features (K * (C+1) * (G+1), 9) of tasks of a kind in some free room, by the rule's flat index.

    A one, the log of the least duration at each probed number of GPUs, the rule's size, and the log of the
    duration at that size; all about 0 to 1. ``cpus`` and ``gpus`` are the rule's sizes for every free room.
    """
    kinds, wide, high = durations.shape
    out = np.zeros((kinds, wide, high, TABLE_FEATURES), dtype=np.float32)
    fastest = durations.min(axis=1)
    steps = np.stack([fastest[:, min(probe, high - 1)] for probe in _PROBES], axis=1)
    out[..., 0] = 1.0
    out[..., 1:6] = _log(steps)[:, None, None]
    out[..., RULE_GPUS_COLUMN] = gpus / SIZES_MAX
    out[..., RULE_CPUS_COLUMN] = cpus / SIZES_MAX
    out[..., 8] = _log(durations[np.arange(kinds)[:, None, None], cpus, gpus])
    return out.reshape(-1, TABLE_FEATURES)


def _log(steps: Floats) -> Floats:
    """Return a third of the log of durations; believed durations are at least a thousandth of a step."""
    return np.asarray(np.log(np.maximum(np.where(np.isfinite(steps), steps, _STEPS_UNKNOWN), 1e-3)) / 3.0)
