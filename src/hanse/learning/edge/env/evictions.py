"""Evictions: tasks that stop before they are done, because a policy preempts them or their nodes fail."""

from typing import Final

import numpy as np

from hanse.learning.edge.env.columns import Columns
from hanse.learning.edge.env.keyed_random import derive_key, uniform
from hanse.learning.edge.env.policy_interface import NONE, Ints
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.visible_tasks import PendingSlots

_FAILURE: Final = np.int64(3)
"""Key of the draws of failures; those of ``world`` have the others."""


def evict_tasks(s: Columns, setting: Setting, pending: PendingSlots, e: Ints, n: Ints, r: Ints) -> None:
    """Stop running tasks, keep what their checkpoint holds, and return them to the pending tasks."""
    if not len(e):
        return
    task = s.run[e, n, r]
    kept = np.maximum(s.progress[e, n, r] - setting.variants.checkpoint_loss, 0.0)
    s.saved[e, task] = kept
    s.moved[e, task] = True
    np.add.at(s.free, (e, n), s.run_size[e, n, r])
    clusters, slots = s.run.shape[1:]
    s.clear_running((e * clusters + n) * slots + r)
    order = np.lexsort((task, e))
    pending.show(s, e[order], task[order])


def apply_failures(s: Columns, setting: Setting, pending: PendingSlots, seed: Ints, rows: Ints) -> None:
    """Return repaired nodes and let nodes fail; tasks without room go back to pending."""
    variants, capacity = setting.variants, np.array(setting.capacity, dtype=np.int64)
    back = (s.back_at[rows] == s.time[rows, None]) & s.down[rows].any(axis=2)
    k, n = np.nonzero(back)
    s.free[rows[k], n] += s.down[rows[k], n]
    s.down[rows[k], n] = 0
    key = derive_key(seed[rows].astype(np.uint64), np.asarray(_FAILURE))
    key = derive_key(key[:, None], np.arange(setting.clusters)[None, :])
    chance = uniform(derive_key(key, s.time[rows, None]))
    k, n = np.nonzero((chance < variants.failure_rate) & ~s.down[rows].any(axis=2))
    e = rows[k]
    gone = np.ceil(capacity[n] * variants.failure_share).astype(np.int64)
    s.down[e, n] = gone
    s.free[e, n] -= gone
    s.back_at[e, n] = s.time[e] + variants.repair_steps
    while True:
        short = (s.free[e, n] < 0).any(axis=1)
        if not short.any():
            return
        e, n = e[short], n[short]
        # the youngest task goes first: it has the least to lose; ties to the higher slot
        age = np.where(s.run[e, n] != NONE, s.run_start[e, n], NONE)
        r = age.shape[1] - 1 - np.argmax(age[:, ::-1], axis=1)
        evict_tasks(s, setting, pending, e, n, r)
