"""The part of a task's features that depends only on its kind and the free room: a table, made once per rule.

Kept apart from the other features because the rule carries the table with it.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hanse.policy.edge.view import Floats, Ints

Singles = NDArray[np.float32]

SIZES_MAX: Final = 16
"""The heads size a task with 1 to this many CPUs and GPUs."""

SHOWN_FEATURES: Final = 9
GPUS_SHOWN: Final = 6
CPUS_SHOWN: Final = 7
"""Columns that hold the rule's size for the task, in units of ``SIZES_MAX``; 0: nothing fits."""

_PROBES: Final = (1, 2, 4, 8, 16)
"""GPUs at which a task's believed duration is shown."""

_STEPS_UNKNOWN: Final = 20.0
"""Shown where a task would never end."""


def shown_table(durations: Floats, cpus: Ints, gpus: Ints) -> Singles:
    """(K * (C+1) * (G+1), 9) what a task of a kind in some free room is shown as, by the rule's flat index.

    A one, the log of the least duration at each probed number of GPUs, the rule's size, and the log of the
    duration at that size; all about 0 to 1. ``cpus`` and ``gpus`` are the rule's sizes for every free room.
    """
    kinds, wide, high = durations.shape
    out = np.zeros((kinds, wide, high, SHOWN_FEATURES), dtype=np.float32)
    fastest = durations.min(axis=1)
    steps = np.stack([fastest[:, min(probe, high - 1)] for probe in _PROBES], axis=1)
    out[..., 0] = 1.0
    out[..., 1:6] = _log(steps)[:, None, None]
    out[..., GPUS_SHOWN] = gpus / SIZES_MAX
    out[..., CPUS_SHOWN] = cpus / SIZES_MAX
    out[..., 8] = _log(durations[np.arange(kinds)[:, None, None], cpus, gpus])
    return out.reshape(-1, SHOWN_FEATURES)


def _log(steps: Floats) -> Floats:
    """Log of durations, a third of it; believed durations are at least a thousandth of a step."""
    return np.asarray(np.log(np.maximum(np.where(np.isfinite(steps), steps, _STEPS_UNKNOWN), 1e-3)) / 3.0)
