"""Published observation as dense arrays.

Raw room, pending and running tasks, for learners that want the original form.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from hanse.learning.edge.env.policy_interface import NONE, Flags
from hanse.learning.edge.env.world import EdgeWorld

Singles = NDArray[np.float32]


class Observation(msgspec.Struct, frozen=True, eq=False):
    """Observation of source 002's clusters. K kinds as one-hot columns."""

    server: Singles
    """(E, N, 3) free CPUs, free GPUs, queue length."""
    pending: Singles
    """(E, N, P, 3 + K) least CPUs, least GPUs, 1 if the slot is a dummy, kind."""
    running: Singles
    """(E, N, R, 3 + K) CPUs, GPUs, kind, steps since the start (progress is hidden)."""
    mask: Flags
    """(E, N, P) slots whose minimum fits into the free room."""


def observe(world: EdgeWorld) -> Observation:
    """Return the observation of all episodes."""
    s, speed_table = world.state, world.setting.speed_table
    kinds = len(speed_table.names)
    episodes, clusters, _ = s.pend.shape
    server = np.concatenate([s.free, s.queued[..., None]], axis=-1).astype(np.float32)
    # one row per kind and a last one for the dummy: a gather is the fastest way to fill the columns
    rows = np.zeros((kinds + 1, 3 + kinds), dtype=np.float32)
    rows[:kinds, :2] = speed_table.minimum
    rows[kinds, 2] = 1.0
    rows[np.arange(kinds), 3 + np.arange(kinds)] = 1.0
    shown = np.where(s.pend != NONE, s.pend_kind, kinds)
    pending = rows.take(shown, axis=0)
    running = np.zeros((s.run.size, 3 + kinds), dtype=np.float32)
    going = np.flatnonzero(s.run != NONE)  # most slots are empty: fill only the others
    busy = np.empty((len(going), 3 + kinds), dtype=np.float32)
    busy[:, :2] = s.run_size.reshape(-1, 2).take(going, axis=0)
    busy[:, 2:-1] = rows[:, 3:].take(s.run_kind.ravel().take(going), axis=0)
    busy[:, -1] = s.time.take(going // (s.run.size // episodes)) - s.run_start.ravel().take(going)
    running[going] = busy
    # a kind fits or not per cluster; the dummy never fits
    fits = np.zeros((episodes, clusters, kinds + 1), dtype=np.bool_)
    fits[..., :kinds] = (speed_table.minimum <= s.free[:, :, None]).all(axis=-1)
    owner = np.arange(episodes * clusters).reshape(episodes, clusters, 1)
    return Observation(
        server=server,
        pending=pending,
        running=running.reshape(*s.run.shape, 3 + kinds),
        mask=fits.ravel().take(shown + owner * (kinds + 1)),
    )
