"""Plain rules that every other policy is compared with: Random, Min, FIFO, SJF and DRF.

None of them holds a task back for a better size, none moves a running task. Clusters choose independently;
where two choose the same task, the environment's conflict rule decides.
"""

import numpy as np

from hanse.learning.edge.env.keyed_random import Keys, derive_key, pick, uniform
from hanse.learning.edge.env.policy_interface import NONE, Choice, EdgeView, Flags, Floats, Ints
from hanse.learning.edge.policies.priced import PricedRule


def feasible_tasks(view: EdgeView, minimum: Ints) -> Flags:
    """Flag pending tasks (E, N, P) whose minimum fits into the free room, at clusters that may act."""
    need = minimum[view.kind]
    fits = (need <= view.free[:, :, None, :]).all(axis=-1)
    return np.asarray(fits & (view.task != NONE) & view.can_act[:, :, None])


def at_slot(column: Ints, slot: Ints) -> Ints:
    """Return ``column[e, n, slot[e, n]]``; for a pass the value of the last slot, for the caller to mask."""
    return np.take_along_axis(column, slot[:, :, None] % column.shape[2], axis=2)[:, :, 0]


def _make_choice(slot: Ints, cpus: Ints, gpus: Ints) -> Choice:
    """Return a choice without preference."""
    return Choice(slot=slot, cpus=cpus, gpus=gpus, preference=np.zeros(slot.shape))


def choose_random(view: EdgeView, minimum: Ints, limit: tuple[int, int], key: Keys) -> Choice:
    """Choose a uniform pending task with a uniform valid size, "nothing" being one of the sizes.

    ``key`` is (E, N).
    """
    filled = (view.task != NONE) & view.can_act[:, :, None]
    slot = pick(key, filled)
    need = minimum[at_slot(view.kind, slot)]
    most = np.minimum(view.free, np.array(limit))
    ways = np.maximum(most - need + 1, 0)
    sizes = ways[..., 0] * ways[..., 1]
    chance = uniform(derive_key(key, np.ones_like(slot)))
    drawn = np.minimum((chance * (sizes + 1)).astype(np.int64), sizes) - 1
    nothing = (drawn < 0) | (slot == NONE)
    cpus = need[..., 0] + drawn // np.maximum(ways[..., 1], 1)
    gpus = need[..., 1] + drawn % np.maximum(ways[..., 1], 1)
    return _make_choice(slot, np.where(nothing, 0, cpus), np.where(nothing, 0, gpus))


def choose_min(view: EdgeView, minimum: Ints, key: Keys) -> Choice:
    """Choose a uniform pending task at its minimum, if that fits. ``key`` is (E, N)."""
    filled = (view.task != NONE) & view.can_act[:, :, None]
    slot = pick(key, filled)
    need = minimum[at_slot(view.kind, slot)]
    fits = (need <= view.free).all(axis=-1) & (slot != NONE)
    return _make_choice(slot, np.where(fits, need[..., 0], 0), np.where(fits, need[..., 1], 0))


def _first_slot(score: Floats, allowed: Flags, view: EdgeView) -> Ints:
    """Return the allowed slot with the least score; ties to the longer wait, then the lower task number."""
    best = np.where(allowed, score, np.inf).min(axis=2, keepdims=True)
    tied = allowed & (score == best)
    waited = np.where(tied, view.waited, -1)
    tied &= waited == waited.max(axis=2, keepdims=True)
    slot = np.argmin(np.where(tied, view.task, np.iinfo(np.int64).max), axis=2)
    return np.where(allowed.any(axis=2), slot, NONE)


def choose_fifo(view: EdgeView, minimum: Ints, fastest: PricedRule) -> Choice:
    """Choose the oldest pending task that fits, at its fastest size now (a rule with prices of 0)."""
    allowed = feasible_tasks(view, minimum)
    slot = _first_slot(-view.waited.astype(np.float64), allowed, view)
    return _at_fastest_size(view, slot, fastest)


def choose_sjf(view: EdgeView, minimum: Ints, fastest: PricedRule) -> Choice:
    """Choose the pending task that would end soonest, at its fastest size now."""
    allowed = feasible_tasks(view, minimum)
    room = np.minimum(view.free, fastest.limit)
    soonest = fastest.cost[view.kind, room[:, :, None, 0], room[:, :, None, 1]]
    slot = _first_slot(soonest, allowed, view)
    return _at_fastest_size(view, slot, fastest)


def _at_fastest_size(view: EdgeView, slot: Ints, fastest: PricedRule) -> Choice:
    kind = at_slot(view.kind, slot)
    room = np.minimum(view.free, fastest.limit)
    cpus = fastest.cpus[kind, room[..., 0], room[..., 1]]
    gpus = fastest.gpus[kind, room[..., 0], room[..., 1]]
    taken = slot != NONE
    return _make_choice(slot, np.where(taken, cpus, 0), np.where(taken, gpus, 0))


def choose_drf(view: EdgeView, minimum: Ints, limit: tuple[int, int]) -> Choice:
    """Choose the oldest task that fits, with an equal share of the cluster for every task there.

    With equal tasks dominant-resource fairness is an equal split of both resources; the share is rounded
    down, never below the task's minimum and never above what is free.
    """
    allowed = feasible_tasks(view, minimum)
    slot = _first_slot(-view.waited.astype(np.float64), allowed, view)
    in_hand = (view.run_task != NONE).sum(axis=2) + (view.task != NONE).sum(axis=2) + view.queued
    share = view.capacity[None] // np.maximum(in_hand, 1)[..., None]
    need = minimum[at_slot(view.kind, slot)]
    size = np.minimum(np.maximum(share, need), np.minimum(view.free, np.array(limit)))
    taken = slot != NONE
    return _make_choice(slot, np.where(taken, size[..., 0], 0), np.where(taken, size[..., 1], 0))
