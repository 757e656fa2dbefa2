"""Rollout search over the priced rule: try a few first moves, play the rule from each, take the best.
Any-time.

The search plays in a small model of the league: free room, believed ends of running tasks, waiting tasks, and
the arrivals of some imagined (or, for the upper anchor, known) futures. Started tasks end after their
believed duration, so a step of time is one addition. Lanes are all (state, candidate, future) combinations,
stepped together; more futures, or more rounds of them, cost more time and give a better answer, and the
search may stop after any of them.
"""

from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import NONE, Choice, EdgeView, Flags, Floats, Ints, reach_flags
from hanse.learning.edge.policies.priced import PricedRule, choose_in_turn

HORIZON: Final = 16
"""Steps for which a lane is played."""

CANDIDATES_MAX: Final = 24
"""First moves tried per cluster and round."""


STANDARD_ERRORS: Final = 2.0
"""Standard errors by which an imagined gain must exceed zero before the search leaves the rule."""


class FutureArrivals(msgspec.Struct, frozen=True, eq=False):
    """Arrivals of the next steps in F imagined futures of each of E episodes. Axes: episode, future, task."""

    after: Ints
    """(E, F, A) steps from now, at least 1; beyond the horizon: never."""
    kind: Ints
    reach: Ints


class RolloutLanes:
    """Copies (B) of the league, played forward by the rule."""

    def __init__(self, rule: PricedRule, capacity: Ints, free: Ints, release: Ints, horizon: int) -> None:
        """Begin with ``free`` (B, N, 2) and ``release`` (B, N, horizon + 1, 2), room that comes back after so
        many steps."""
        self.rule = rule
        self.free = free
        self.release = release
        self.horizon = horizon
        room = np.minimum(capacity, rule.limit)
        self.alone = rule.cost[:, room[:, 0], room[:, 1]]
        self.spent = np.zeros(len(free))

    def set_tasks(self, kind: Ints, reach: Flags, after: Ints, waited: Ints) -> None:
        """Set (B, W) tasks, waiting now or later; ``reach`` is (B, W, N)."""
        self.kind, self.reach, self.after, self.waited = kind, reach, after, waited
        self.waiting = after <= 0
        self.best = np.where(reach, self.alone[kind], np.inf).min(axis=2)
        self.options = reach.sum(axis=2)

    def start(self, lane: Ints, task: Ints, cluster: Ints, size: Ints, now: int) -> None:
        """Start one task per named lane with ``size`` (L, 2)."""
        kind = self.kind[lane, task]
        steps = self.rule.durations[kind, size[:, 0], size[:, 1]]
        end = now + np.where(np.isfinite(steps), np.ceil(steps), self.horizon).astype(np.int64)
        self.waiting[lane, task] = False
        self.free[lane, cluster] -= size
        inside = end <= self.horizon
        where = lane[inside], cluster[inside], end[inside]
        np.add.at(self.release, where, size[inside])
        self.spent[lane] += end - now

    def dispatch(self, now: int) -> None:
        """Start the tasks that the rule would, one per lane at a time, until no lane starts any.

        As the rule with everything shared: fewest clusters reached first, then the longest wait; the task
        goes to the cluster with the least cost, among equals to the one with the most free GPUs.
        """
        lane = np.arange(len(self.free))
        for _ in range(self.kind.shape[1]):
            column = np.flatnonzero(self.waiting[lane].any(axis=0))
            if not len(column):
                return
            room = np.minimum(self.free[lane], self.rule.limit)
            offers = self.rule.cost[:, room[..., 0], room[..., 1]] - 1e-9 * room[None, :, :, 1]
            grid = np.ix_(lane, column)
            kind = self.kind[grid]
            each = offers[kind, np.arange(len(lane))[:, None]]
            each = np.where(self.reach[grid], each, np.inf)
            cost = each.min(axis=2)
            late = self.waited[grid] + now >= self.rule.prices.wait_max
            fine = (cost <= self.rule.prices.patience * self.best[grid]) | (late & np.isfinite(cost))
            usable = self.waiting[grid] & fine
            some = usable.any(axis=1)
            lane = lane[some]
            if not len(lane):
                return
            order = self.options[grid] * 1_000 - np.clip(self.waited[grid] + now, 0, 900)
            pick = np.argmin(np.where(usable, order, 1 << 40)[some], axis=1)
            cluster = np.argmin(each[some][np.arange(len(lane)), pick], axis=1)
            table = kind[some][np.arange(len(lane)), pick], *room[some][np.arange(len(lane)), cluster].T
            size = np.stack([self.rule.cpus[table], self.rule.gpus[table]], axis=1)
            self.start(lane, column[pick], cluster, size, now)

    def play(self) -> Floats:
        """Return (B,) steps spent by all tasks, with an estimate for those that wait at the horizon.

        Step 0 was dispatched.
        """
        for now in range(self.horizon):
            if now:
                self.dispatch(now)
            self.spent += self.waiting.sum(axis=1)
            self.free = self.free + self.release[:, :, now + 1]
            self.waiting |= self.after == now + 1
        ideal = np.where(np.isfinite(self.best), self.best, 0.0)
        return np.asarray(self.spent + np.where(self.waiting, ideal, 0.0).sum(axis=1))


def waiting_tasks(view: EdgeView, rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the distinct pending tasks of some episodes, padded: numbers, kinds, reach, waits, each (L,
    W)."""
    episodes = len(rows)
    task = view.task[rows].reshape(episodes, -1)
    order = np.argsort(task, axis=1, kind="stable")
    task = np.take_along_axis(task, order, axis=1)
    columns = [
        np.take_along_axis(c[rows].reshape(episodes, -1), order, axis=1)
        for c in (view.kind, view.reach, view.waited)
    ]
    fresh = (task != NONE) & np.concatenate(
        [np.ones((episodes, 1), dtype=np.bool_), task[:, 1:] != task[:, :-1]], axis=1
    )
    width = max(int(fresh.sum(axis=1).max(initial=0)), 1)
    first = np.argsort(~fresh, axis=1, kind="stable")[:, :width]
    there = np.take_along_axis(fresh, first, axis=1)
    packed = [np.where(there, np.take_along_axis(c, first, axis=1), 0) for c in columns]
    return np.where(there, np.take_along_axis(task, first, axis=1), NONE), packed[0], packed[1], packed[2]


def expected_releases(rule: PricedRule, view: EdgeView, rows: Ints, horizon: int) -> Ints:
    """Return (L, N, horizon + 1, 2) room that is believed to come back after so many steps."""
    run = view.run_task[rows] != NONE
    cpus, gpus = view.run_cpus[rows], view.run_gpus[rows]
    whole = rule.durations[
        view.run_kind[rows], np.minimum(cpus, rule.limit[0]), np.minimum(gpus, rule.limit[1])
    ]
    left = np.ceil(np.where(np.isfinite(whole), whole, 1.0)).astype(np.int64) - view.run_elapsed[rows]
    left = np.clip(left, 1, None)
    out = np.zeros((len(rows), view.task.shape[1], horizon + 1, 2), dtype=np.int64)
    e, n, r = np.nonzero(run & (left <= horizon))
    np.add.at(out, (e, n, left[e, n, r]), np.stack([cpus[e, n, r], gpus[e, n, r]], axis=1))
    return out


def candidate_moves(
    rule: PricedRule, view: EdgeView, e: int, n: int, taken: tuple[int, ...]
) -> list[tuple[int, int, int]]:
    """Return first moves of one cluster.

    (slot, CPUs, GPUs); the last is the pass. One task per kind and reach, few sizes.
    """
    moves: list[tuple[int, int, int]] = []
    seen: list[tuple[int, int]] = []
    room = np.minimum(view.free[e, n], rule.limit)
    for slot in np.argsort(-view.waited[e, n], kind="stable"):
        if view.task[e, n, slot] == NONE or int(view.task[e, n, slot]) in taken:
            continue
        kind, reach = int(view.kind[e, n, slot]), int(view.reach[e, n, slot])
        if (kind, reach) in seen or not np.isfinite(rule.cost[kind, room[0], room[1]]):
            continue
        seen.append((kind, reach))
        values = rule.value[kind, : room[0] + 1, : room[1] + 1]
        steps = rule.durations[kind, : room[0] + 1, : room[1] + 1]
        cpus = np.argmin(values, axis=0)
        gpus = np.arange(room[1] + 1)
        known: list[float] = []
        for g in gpus:  # the smallest size of each duration: a larger one would waste room
            c = int(cpus[g])
            if np.isfinite(values[c, g]) and steps[c, g] not in known:
                known.append(float(steps[c, g]))
                moves.append((int(slot), c, int(g)))
    return [*moves[: CANDIDATES_MAX - 1], (NONE, 0, 0)]


def search_turn(
    rule: PricedRule,
    view: EdgeView,
    n: int,
    earlier_choice: Choice,
    future: FutureArrivals,
    horizon: int = HORIZON,
) -> Choice:
    """Return the earlier choice with cluster ``n``'s best move added, for all episodes."""
    rows = np.flatnonzero(view.can_act[:, n])
    moves: list[tuple[int, int, int, int]] = []
    for e in rows:
        earlier_moves = [
            (m, int(earlier_choice.slot[e, m]))
            for m in range(view.task.shape[1])
            if earlier_choice.slot[e, m] != NONE
        ]
        taken = tuple(int(view.task[e, m, slot]) for m, slot in earlier_moves)
        candidates = candidate_moves(rule, view, int(e), n, taken)
        if len(candidates) > 1:
            moves.extend((int(e), *move) for move in candidates)
    if not moves:
        return earlier_choice
    table = np.array(moves, dtype=np.int64)
    futures = future.kind.shape[1]
    lane_move = np.repeat(np.arange(len(table)), futures)
    cost = _play_moves(rule, view, n, earlier_choice, future, (table, lane_move), horizon)
    cost = cost.reshape(len(table), futures)
    usual = choose_in_turn(rule, view)
    slot, cpus, gpus = earlier_choice.slot.copy(), earlier_choice.cpus.copy(), earlier_choice.gpus.copy()
    for e in np.unique(table[:, 0]):
        mine = np.flatnonzero(table[:, 0] == e)
        pick = table[mine[_best_move(cost[mine], _rule_move_index(view, n, int(e), usual, table[mine]))]]
        slot[e, n], cpus[e, n], gpus[e, n] = pick[1], pick[2], pick[3]
    return Choice(slot=slot, cpus=cpus, gpus=gpus, preference=earlier_choice.preference)


def _rule_move_index(view: EdgeView, n: int, e: int, usual: Choice, moves: Ints) -> int:
    """Return the index of the rule's move: the same kind, reach and size; else the pass, which is last."""
    slot = int(usual.slot[e, n])
    if slot != NONE:
        alike = (view.kind[e, n, moves[:, 1]] == view.kind[e, n, slot]) & (
            view.reach[e, n, moves[:, 1]] == view.reach[e, n, slot]
        )
        same = alike & (moves[:, 2] == usual.cpus[e, n]) & (moves[:, 3] == usual.gpus[e, n])
        if same.any():
            return int(np.argmax(same))
    return len(moves) - 1


def _best_move(cost: Floats, usual: int) -> int:
    """Return the move of least mean cost over (moves, futures), if it is significantly better than the
    rule's."""
    best = int(np.argmin(cost.mean(axis=1)))
    gain = cost[usual] - cost[best]
    futures = len(gain)
    doubt = float(gain.std(ddof=1)) / futures**0.5 if futures > 1 else 0.0
    return best if float(gain.mean()) > STANDARD_ERRORS * doubt else usual


def _play_moves(
    rule: PricedRule,
    view: EdgeView,
    n: int,
    earlier_choice: Choice,
    future: FutureArrivals,
    moves: tuple[Ints, Ints],
    horizon: int,
) -> Floats:
    """Return (lanes,) the cost of each move in each future."""
    table, lane_move = moves
    move = table[lane_move]
    e = move[:, 0]
    which = np.tile(np.arange(future.kind.shape[1]), len(table))
    task, kind, reach, waited = waiting_tasks(view, e)
    lanes = RolloutLanes(
        rule, view.capacity, view.free[e].copy(), expected_releases(rule, view, e, horizon), horizon
    )
    lanes.set_tasks(
        np.concatenate([kind, future.kind[e, which]], axis=1),
        reach_flags(np.concatenate([reach, future.reach[e, which]], axis=1), view.task.shape[1]),
        np.concatenate([np.where(task == NONE, 1 << 30, 0), future.after[e, which]], axis=1),
        np.concatenate([waited, -future.after[e, which]], axis=1),
    )
    for m in range(view.task.shape[1]):
        slot = earlier_choice.slot[e, m] if m != n else move[:, 1]
        lane = np.flatnonzero(slot != NONE)
        if not len(lane):
            continue
        wanted = view.task[e[lane], m, slot[lane]]
        where = np.argmax(task[lane] == wanted[:, None], axis=1)
        cpus = earlier_choice.cpus[e, m] if m != n else move[:, 2]
        gpus = earlier_choice.gpus[e, m] if m != n else move[:, 3]
        lanes.start(lane, where, np.full(len(lane), m), np.stack([cpus[lane], gpus[lane]], axis=1), 0)
    # a pass holds for this step of time, for this cluster and for those that had their turn before it
    passed = earlier_choice.slot[e] == NONE
    passed[:, n] = move[:, 1] == NONE
    passed[:, n + 1 :] = False
    held = lanes.reach
    lanes.reach = held & ~(passed[:, None, :] & (lanes.after <= 0)[:, :, None])
    lanes.dispatch(0)
    lanes.reach = held
    return lanes.play()
