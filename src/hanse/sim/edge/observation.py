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
    eye = np.eye(len(book.names), dtype=np.float32)
    filled, going = s.pend != NONE, s.run != NONE
    server = np.concatenate([s.free, s.queued[..., None]], axis=-1).astype(np.float32)
    least = book.minimum[s.pend_kind]
    pending = np.empty((*s.pend.shape, 3 + len(eye)), dtype=np.float32)
    pending[..., :2] = least
    pending[..., 2] = 0.0
    pending[..., 3:] = eye[s.pend_kind]
    pending[~filled] = 0.0
    pending[..., 2] = ~filled
    running = np.empty((*s.run.shape, 3 + len(eye)), dtype=np.float32)
    running[..., :2] = s.run_size
    running[..., 2:-1] = eye[s.run_kind]
    running[..., -1] = s.time[:, None, None] - s.run_start
    running[~going] = 0.0
    mask = filled & (least <= s.free[:, :, None, :]).all(axis=-1)
    return Observation(server=server, pending=pending, running=running, mask=np.asarray(mask))
