"""Priced rule: the size of a task with the least duration, marked up by the price of what it holds.

``cost(c, g) = d(c, g) * (1 + gpu_price * g + cpu_price * (c - minimum))`` over the sizes that fit into the
free room. A task starts only if that cost is at most ``patience`` times the least cost it could have anywhere
it reaches; otherwise it waits for room. A task that has waited too long starts at whatever fits: without that
guard a task that reaches only small clusters could wait for ever. For one set of believed durations the
answer depends only on the kind and the free room, so the rule is compiled into tables once and a decision is
a lookup.
"""

from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import NONE, Choice, EdgeView, Flags, Floats, Ints, reach_flags
from hanse.learning.edge.policies.feature_table import Singles, make_feature_table


class Prices(msgspec.Struct, frozen=True):
    """Constants of the rule."""

    gpu_price: float = 0.08
    """Mark-up per GPU held."""
    cpu_price: float = 0.02
    """Mark-up per CPU held above the minimum: enough to avoid useless CPUs."""
    patience: float = 2.0
    """Greatest cost at which a task starts, relative to the best it could get anywhere."""
    wait_max: int = 15
    """Steps after which a task starts at any size that fits."""


class PricedRule(msgspec.Struct, frozen=True, eq=False):
    """Rule compiled for one table of durations. Tables are indexed by kind, free CPUs, free GPUs."""

    prices: Prices
    minimum: Ints
    """(K, 2)."""
    limit: Ints
    """(2,) the largest size."""
    durations: Floats
    """(K, C+1, G+1) believed steps."""
    value: Floats
    """(K, C+1, G+1) durations marked up, of each size itself."""
    cost: Floats
    """(K, C+1, G+1) the least value among the sizes that fit; ``inf`` where none does."""
    cpus: Ints
    gpus: Ints
    """Size with that value; ties to fewer GPUs, then fewer CPUs; 0 where none fits."""
    feature_table: Singles
    """Network features of a kind in some free room, by the flat index of :meth:`at`."""

    def table_index(self, kind: Ints, free: Ints) -> Ints:
        """Return the flat index into the tables of tasks of ``kind`` (..., P) in ``free`` room (..., 2)."""
        _, wide, high = self.cost.shape
        room = np.minimum(free, self.limit)
        return np.asarray(kind * (wide * high) + (room[..., 0] * high + room[..., 1])[..., None])


def compile_rule(durations: Floats, minimum: Ints, prices: Prices) -> PricedRule:
    """Compile the tables of the best size for every free room."""
    kinds, wide, high = durations.shape
    c = np.arange(wide)[None, :, None]
    g = np.arange(high)[None, None, :]
    markup = 1.0 + prices.gpu_price * g + prices.cpu_price * np.maximum(c - minimum[:, 0, None, None], 0)
    allowed = (c >= minimum[:, 0, None, None]) & (g >= minimum[:, 1, None, None])
    value = np.where(allowed, durations * markup, np.inf)
    # rank all sizes once by (value, GPUs, CPUs); the least rank among the smaller sizes is then the answer
    flat_c = np.broadcast_to(c, value.shape).reshape(kinds, -1)
    flat_g = np.broadcast_to(g, value.shape).reshape(kinds, -1)
    order = np.lexsort((flat_c, flat_g, value.reshape(kinds, -1)), axis=-1)
    rank = np.argsort(order, axis=-1).reshape(value.shape)
    rank = np.minimum.accumulate(np.minimum.accumulate(rank, axis=1), axis=2)
    size = np.take_along_axis(order, rank.reshape(kinds, -1), axis=1)
    cost = np.take_along_axis(value.reshape(kinds, -1), size, axis=1).reshape(value.shape)
    fits = np.isfinite(cost)
    assert kinds == len(minimum), "durations and minimums are of different kinds"
    cpus = np.where(fits, size.reshape(value.shape) // high, 0)
    gpus = np.where(fits, size.reshape(value.shape) % high, 0)
    return PricedRule(
        prices=prices,
        minimum=minimum,
        limit=np.array([wide - 1, high - 1], dtype=np.int64),
        durations=durations,
        value=value,
        cost=cost,
        cpus=cpus,
        gpus=gpus,
        feature_table=make_feature_table(durations, cpus, gpus),
    )


def best_anywhere(
    rule: PricedRule, capacity: Ints, kind: Ints, reach: Ints, reached: Flags | None = None
) -> Floats:
    """Return the least cost each task could have on an empty cluster that it reaches.

    ``inf`` where it reaches none. ``reached`` is ``reach`` as flags, if the caller has them.
    """
    room = np.minimum(capacity, rule.limit)
    alone = rule.cost[:, room[:, 0], room[:, 1]]
    clusters = len(capacity)
    if clusters <= TABLED_CLUSTERS_MAX and reach.size >= 1 << clusters:  # worth a table of all bit sets
        sets = np.arange(1 << clusters, dtype=np.int64)
        table = np.where(reach_flags(sets, clusters)[None], alone[:, None, :], np.inf).min(axis=2)
        return np.asarray(table[kind, reach])
    reached = reach_flags(reach, clusters) if reached is None else reached
    return np.asarray(np.where(reached, alone.take(kind, axis=0), np.inf).min(axis=-1))


TABLED_CLUSTERS_MAX: Final = 10
"""Largest league that looks the best cost up by the bit set of reach."""


def acceptable_tasks(
    rule: PricedRule, view: EdgeView, free: Ints, best: Floats | None = None
) -> tuple[Flags, Floats]:
    """Return (E, N, P) tasks that the rule would start now in ``free`` room, and their cost.

    ``best`` is the result of :func:`best_anywhere`, if the caller has it.
    """
    cost = rule.cost.ravel().take(rule.table_index(view.kind, free))
    if best is None:
        best = best_anywhere(rule, view.capacity, view.kind, view.reach)
    patient = cost <= rule.prices.patience * best
    late = view.waited >= rule.prices.wait_max
    filled = (view.task != NONE) & view.can_act[:, :, None]
    return np.asarray(filled & np.isfinite(cost) & (patient | late)), cost


def best_here(rule: PricedRule, view: EdgeView, believed: Ints, cost: Floats) -> Flags:
    """Flag tasks (E, N, P) for which no other cluster that reaches them offers a lower cost now.

    ``believed`` (E, N, N, 2) is what each cluster (second axis) believes to be free at each other (third
    axis); negative where it knows nothing, and then it leaves nothing to that one.
    """
    reached = reach_flags(view.reach, view.task.shape[1])
    return np.asarray(cost <= _best_offer_elsewhere(rule, view, believed, reached))


def _best_offer_elsewhere(rule: PricedRule, view: EdgeView, believed: Ints, reached: Flags) -> Floats:
    """Return (E, N, P) the least cost that a reached cluster is believed to offer now."""
    episodes, clusters, _ = view.task.shape
    kinds, wide, high = rule.cost.shape
    room = np.minimum(np.maximum(believed, 0), rule.limit)
    offers = rule.cost.reshape(kinds, wide * high).take(room[..., 0] * high + room[..., 1], axis=1)
    offers[:, (believed < 0).any(axis=-1)] = np.inf
    row = view.kind * (episodes * clusters) + np.arange(episodes * clusters).reshape(episodes, clusters, 1)
    each = offers.reshape(-1, clusters).take(row, axis=0)
    each[~reached] = np.inf
    return np.asarray(each.min(axis=-1))


class RuleStanding(msgspec.Struct, frozen=True, eq=False):
    """Rule's result for every pending task; all (E, N, P) but the last."""

    cost: Floats
    """Its cost in its cluster's free room; ``inf`` where it does not fit."""
    best: Floats
    """Least cost on an empty cluster that it reaches; ``inf`` where it reaches none."""
    allowed: Flags
    """True if the rule would start it now, judged by its own cluster alone."""
    ours: Flags
    """True if no other cluster is believed to offer less now."""
    reached: Flags
    """(E, N, P, N) clusters it reaches."""


def rule_standing(rule: PricedRule, view: EdgeView, believed: Ints) -> RuleStanding:
    """Compute the rule's result for all pending tasks once. ``believed``: (E, N, N, 2)."""
    reached = reach_flags(view.reach, view.task.shape[1])
    best = best_anywhere(rule, view.capacity, view.kind, view.reach, reached)
    allowed, cost = acceptable_tasks(rule, view, view.free, best)
    ours = np.asarray(cost <= _best_offer_elsewhere(rule, view, believed, reached))
    return RuleStanding(cost=cost, best=best, allowed=allowed, ours=ours, reached=reached)


def shared_room(view: EdgeView) -> Ints:
    """Return (E, N, N, 2) the free room of all clusters, known to all.

    Nothing for those that passed.
    """
    episodes, clusters, _ = view.task.shape
    known = np.where(view.can_act[..., None], view.free, NONE)
    return np.broadcast_to(known[:, None], (episodes, clusters, clusters, 2))


def choose_in_turn(rule: PricedRule, view: EdgeView) -> Choice:
    """Choose for every cluster with everything shared, in turn: no task is taken twice.

    The cluster with the most free GPUs goes first (ties: lower index). A cluster leaves a task to another
    that would give it a lower cost now. Inside a cluster: fewest clusters reached first (a task without an
    alternative must not lose), then the longest wait, then the lowest task number.
    """
    stand = rule_standing(rule, view, shared_room(view))
    allowed = stand.allowed & stand.ours
    episodes, clusters, _ = view.task.shape
    slot = np.full((episodes, clusters), NONE, dtype=np.int64)
    taken = slot.copy()
    rows = np.arange(episodes)
    options = np.bitwise_count(view.reach).astype(np.int64)
    turns = np.argsort(-view.free[..., 1], axis=1, kind="stable")
    for turn in range(clusters):
        n = turns[:, turn]
        task = view.task[rows, n]
        usable = allowed[rows, n] & ~(task[:, :, None] == taken[:, None, :turn]).any(axis=2)
        chosen = order_slots(options[rows, n], view.waited[rows, n], task, usable)
        slot[rows, n] = chosen
        taken[:, turn] = np.where(chosen != NONE, task[rows, chosen], NONE)
    return at_rule_sizes(rule, view, slot)


def choose_alone(rule: PricedRule, view: EdgeView, believed: Ints) -> Choice:
    """Choose for every cluster alone, given what it believes of the others' room.

    Two may choose the same task.
    """
    stand = rule_standing(rule, view, believed)
    return at_rule_sizes(rule, view, own_pick(view, stand.allowed & stand.ours))


def own_pick(view: EdgeView, usable: Flags) -> Ints:
    """Return (E, N) each cluster's own choice among the usable slots (E, N, P); ``NONE``: none.

    The order is that of :func:`choose_in_turn` inside a cluster.
    """
    episodes, clusters, window = view.task.shape
    flat = (episodes * clusters, window)
    options = np.bitwise_count(view.reach).astype(np.int64)
    columns = (options.reshape(flat), view.waited.reshape(flat), view.task.reshape(flat))
    return order_slots(*columns, usable.reshape(flat)).reshape(episodes, clusters)


def at_rule_sizes(rule: PricedRule, view: EdgeView, slot: Ints) -> Choice:
    """Return the choice of these slots at the rule's sizes."""
    room = np.minimum(view.free, rule.limit)
    some = slot != NONE
    kind = np.take_along_axis(view.kind, np.where(some, slot, 0)[..., None], axis=2)[..., 0]
    cpus = np.where(some, rule.cpus[kind, room[..., 0], room[..., 1]], 0)
    gpus = np.where(some, rule.gpus[kind, room[..., 0], room[..., 1]], 0)
    return Choice(slot=slot, cpus=cpus, gpus=gpus, preference=np.zeros(slot.shape))


def order_slots(options: Ints, waited: Ints, task: Ints, usable: Flags) -> Ints:
    """Return (B,) the usable slot of (B, P) with fewest options, then longest wait, then lowest task.

    ``NONE`` if none.
    """
    most = np.iinfo(np.int64).max
    fewest = np.where(usable, options, most).min(axis=1, keepdims=True)
    tied = usable & (options == fewest)
    longest = np.where(tied, waited, -1).max(axis=1, keepdims=True)
    tied = tied & (waited == longest)
    slot = np.argmin(np.where(tied, task, most), axis=1)
    return np.where(usable.any(axis=1), slot, NONE)
