"""Preemptive schedulers of the literature with which source 002 compares itself: Tiresias and Optimus.

Both admit the first pending task while the cluster runs fewer than it could at the minimum, then size all
running tasks anew in every round. Arrays are (E, N, R): episodes, clusters, running slots.
"""

import numpy as np

from hanse.learning.edge.env.policy_interface import NONE, EdgeView, Flags, Floats, Ints


def admit_first(view: EdgeView, minimum: Ints) -> Ints:
    """Return (E, N) the first filled slot that no earlier cluster has taken, while a minimum more fits."""
    most = (view.capacity[:, None, :] // minimum[None]).min(axis=(1, 2))
    room = (view.run_task != NONE).sum(axis=2) < most[None]
    episodes, clusters, _ = view.task.shape
    slot = np.full((episodes, clusters), NONE, dtype=np.int64)
    taken = np.full((episodes, clusters), NONE, dtype=np.int64)
    rows = np.arange(episodes)
    for n in range(clusters):
        task = view.task[:, n]
        fresh = (task != NONE) & ~(task[:, :, None] == taken[:, None, :n]).any(axis=2)
        some = fresh.any(axis=1) & room[:, n] & view.can_act[:, n]
        first = np.argmax(fresh, axis=1)
        slot[:, n] = np.where(some, first, NONE)
        taken[:, n] = np.where(some, task[rows, first], NONE)
    return slot


def tiresias(
    running: Flags, started: Ints, task: Ints, now: Ints, capacity: Ints, minimum: Ints, gpus_max: int
) -> tuple[Ints, Ints]:
    """Return CPUs and GPUs of every running slot by two-level least-attained-service.

    Attained service is the time since the start; the second level holds what has at least the cluster's
    median. Inside a level the earlier start goes first, then the lower task number. Each task gets its
    ``minimum`` (E, N, R) of GPUs in that order, then the first takes up to ``gpus_max`` (0: not elastic),
    then the next; the CPUs are split evenly over the tasks that hold GPUs. (These readings of "attained" and
    "in order" give source 002's figures; GPU-steps and round-robin do not.)
    """
    service = np.where(running, now[:, None, None] - started, 0)
    ordered = np.sort(np.where(running, service, np.iinfo(np.int64).max), axis=2)
    count = running.sum(axis=2, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=2)
    high = np.take_along_axis(ordered, count // 2 % running.shape[2], axis=2)
    level = np.where(running, 2 * service >= low + np.where(count % 2 == 0, high, low), 2)
    order = np.lexsort((task, started, level), axis=-1)
    rank = np.argsort(order, axis=-1)
    least = np.take_along_axis(np.where(running, minimum, 0), order, axis=2)
    held = np.where(np.cumsum(least, axis=2) <= capacity[None, :, 1:2], least, 0)
    spare = capacity[None, :, 1:2] - held.sum(axis=2, keepdims=True)
    wish = np.where(held > 0, np.maximum(gpus_max - held, 0), 0)
    held = held + np.clip(spare - (np.cumsum(wish, axis=2) - wish), 0, wish)
    gpus = np.take_along_axis(held, rank, axis=2)
    holders = (gpus > 0).sum(axis=2, keepdims=True)
    cpus = np.where(gpus > 0, np.minimum(capacity[None, :, 0:1] // np.maximum(holders, 1), CPUS_MAX), 0)
    return cpus.astype(np.int64), gpus.astype(np.int64)


CPUS_MAX = 16
"""Largest CPU share of one task in source 002."""


def optimus(
    running: Flags, kind: Ints, progress: Floats, capacity: Ints, minimum: Ints, speed: Floats
) -> tuple[Ints, Ints]:
    """Return sizes by marginal gain: from the minimum up, one unit at a time to the task with the largest
    gain.

    The gain is the fall in believed remaining time divided by the units of that resource it already holds; it
    stops when no unit helps. ``speed`` (K, C+1, G+1) is that of the fitted curve. Ties: GPUs before CPUs,
    lower slot first.
    """
    size = np.where(running[..., None], minimum[kind], 0)
    left = np.where(running, 1.0 - progress, 0.0)
    limit = np.array([speed.shape[1] - 1, speed.shape[2] - 1])
    step = np.array([[1, 0], [0, 1]])
    while True:
        free = capacity[None] - size.sum(axis=2)
        now = left / np.maximum(speed[kind, size[..., 0], size[..., 1]], SPEED_MIN)
        gains = []
        for r in (1, 0):
            more = np.minimum(size + step[r], limit)
            then = left / np.maximum(speed[kind, more[..., 0], more[..., 1]], SPEED_MIN)
            room = running & (size[..., r] < limit[r]) & (free[:, :, None, r] > 0)
            gains.append(np.where(room, (now - then) / np.maximum(size[..., r], 1), -np.inf))
        gain = np.concatenate(gains, axis=2)
        best = np.argmax(gain, axis=2)
        e, n = np.nonzero(np.take_along_axis(gain, best[..., None], axis=2)[..., 0] > 0)
        if not len(e):
            return size[..., 0], size[..., 1]
        slots = running.shape[2]
        chosen = best[e, n]
        size[e, n, chosen % slots, np.where(chosen < slots, 1, 0)] += 1


SPEED_MIN = 1e-6
"""Least believed speed, so that a remaining time stays finite."""
