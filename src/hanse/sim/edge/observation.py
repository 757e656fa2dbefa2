"""The published observation as dense arrays.

Raw room, pending and running tasks, for learners that want it as it was.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from hanse.policy.edge.view import NONE, Flags
from hanse.sim.edge.world import World

Singles = NDArray[np.float32]


class Observation(msgspec.Struct, frozen=True, eq=False):
    """What source 002's clusters see. K kinds as one-hot columns."""

    server: Singles
    """(E, N, 3) free CPUs, free GPUs, queue length."""
    pending: Singles
    """(E, N, P, 3 + K) least CPUs, least GPUs, whether the slot is a dummy, kind."""
    running: Singles
    """(E, N, R, 3 + K) CPUs, GPUs, kind, steps since the start (progress is hidden)."""
    mask: Flags
    """(E, N, P) slots whose minimum fits into the free room."""


def observe(world: World) -> Observation:
    """The observation of all episodes."""
    s, book = world.state, world.setting.book
    kinds = len(book.names)
    filled, going = s.pend != NONE, s.run != NONE
    server = np.concatenate([s.free, s.queued[..., None]], axis=-1).astype(np.float32)
    # one row per kind and a last one for the dummy: a gather is the fastest way to fill the columns
    rows = np.zeros((kinds + 1, 3 + kinds), dtype=np.float32)
    rows[:kinds, :2] = book.minimum
    rows[kinds, 2] = 1.0
    rows[np.arange(kinds), 3 + np.arange(kinds)] = 1.0
    pending = rows.take(np.where(filled, s.pend_kind, kinds), axis=0)
    running = np.zeros((*s.run.shape, 3 + kinds), dtype=np.float32)
    running[..., :2] = s.run_size
    running[..., 2:-1] = rows[:, 3:].take(np.where(going, s.run_kind, kinds), axis=0)
    running[..., -1] = (s.time[:, None, None] - s.run_start) * going
    least = book.minimum[:, 0][s.pend_kind], book.minimum[:, 1][s.pend_kind]
    mask = filled & (least[0] <= s.free[:, :, None, 0]) & (least[1] <= s.free[:, :, None, 1])
    return Observation(server=server, pending=pending, running=running, mask=mask)
