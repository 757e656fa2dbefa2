"""Sizing call of a warden: from pending elastic tasks, free room and believed durations to a choice with
reasons.

One cluster, one moment, plain records; the same rule and network as in training, through the same columns. A
warden calls it again after each start until the answer is that nothing should start now.
"""

from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import NO_DEADLINE, NONE, Choice, EdgeView, Ints
from hanse.learning.edge.network import network as networks
from hanse.learning.edge.network.features import encode
from hanse.learning.edge.network.network import EdgeNetwork
from hanse.learning.edge.policies.guard import GuardState, is_learned_turn
from hanse.learning.edge.policies.priced import (
    PricedRule,
    acceptable_tasks,
    best_anywhere,
    best_here,
    choose_alone,
)

PENDING_MAX: Final = 64
"""Tasks considered in one call: the first of the warden's order; the rest wait."""

ALTERNATIVES_MAX: Final = 5
"""Other sizes listed in an explanation."""


class ElasticTask(msgspec.Struct, frozen=True):
    """Pending task as the warden knows it."""

    task: int
    """Caller's number of the task; ties go to the lower."""
    kind: int
    """Row of the duration table (tasks that were alike so far)."""
    waited: int
    """Time since it was submitted, in the unit of the durations."""
    reach: tuple[int, ...] = (0,)
    """Clusters that can run it, as indices into the rooms of the call; 0 is the caller's own."""
    due: int = NO_DEADLINE
    """Time left to its deadline."""


class RunningTask(msgspec.Struct, frozen=True):
    """Task that holds room in the caller's cluster."""

    kind: int
    cpus: int
    gpus: int
    elapsed: int


class ClusterRoom(msgspec.Struct, frozen=True):
    """Room of a cluster: CPUs and GPUs."""

    capacity: tuple[int, int]
    free: tuple[int, int] | None = None
    """None: the caller does not know (a cluster that has sent no news)."""


class Alternative(msgspec.Struct, frozen=True):
    """Size that was not chosen."""

    cpus: int
    gpus: int
    duration: float
    cost: float


class Sizing(msgspec.Struct, frozen=True):
    """Task to start now, or none, with the reasons."""

    task: int | None
    cpus: int
    gpus: int
    policy: str
    """Policy that answered: ``network`` or ``priced``."""
    gpu_price: float
    cpu_price: float
    patience: float
    duration: float
    """Believed run time at this size; 0 for nothing."""
    cost: float
    """Duration marked up by the price of what it holds; 0 for nothing."""
    best_cost: float
    """Least cost it could have on an empty cluster that it reaches; 0 for nothing."""
    alternatives: tuple[Alternative, ...]
    """Other sizes that fit, cheapest first."""
    passed_over: tuple[tuple[int, str], ...]
    """Pending tasks that were not chosen, each with its reason."""


def size_elastic(
    tasks: tuple[ElasticTask, ...],
    running: tuple[RunningTask, ...],
    rooms: tuple[ClusterRoom, ...],
    rule: PricedRule,
    network: EdgeNetwork | None = None,
    guard_state: GuardState | None = None,
) -> Sizing:
    """Choose one pending task and its size for the first cluster of ``rooms``, or nothing.

    With a network whose turn it is by the guard (``guard.is_learned_turn``; without a guard state it always
    is), the network answers; else the priced rule.
    """
    view = _view(tasks[:PENDING_MAX], running, rooms)
    believed = _known_room(rooms)
    learned = network is not None and (guard_state is None or is_learned_turn(guard_state))
    if network is not None and learned:
        features = networks.restrict_to_oldest(network, encode(rule, view, believed), view)
        local, task, summary = networks.local_states(network, features)
        alone = np.broadcast_to(np.eye(len(rooms), dtype=np.bool_), features.known.shape)
        states = networks.read_summaries(network, local, summary, alone)
        choice = networks.decode_choice(network, rule, view, features, (states, task))
    else:
        choice = choose_alone(rule, view, believed)
    return _explain_choice(
        tasks[:PENDING_MAX], rule, view, believed, choice, "network" if learned else "priced"
    )


def _view(
    tasks: tuple[ElasticTask, ...], running: tuple[RunningTask, ...], rooms: tuple[ClusterRoom, ...]
) -> EdgeView:
    """Return a view of one episode in which only the first cluster has tasks and may act."""
    n, p, r = len(rooms), max(len(tasks), 1), max(len(running), 1)

    def slots(width: int, value: int = 0) -> Ints:
        return np.full((1, n, width), value, dtype=np.int64)

    task, kind, waited, reach, due = slots(p, NONE), slots(p), slots(p), slots(p), slots(p, NO_DEADLINE)
    for i, one in enumerate(tasks):
        task[0, 0, i], kind[0, 0, i], waited[0, 0, i] = one.task, one.kind, one.waited
        reach[0, 0, i], due[0, 0, i] = sum(1 << cluster for cluster in one.reach), one.due
    run, run_kind, run_cpus, run_gpus, elapsed = slots(r, NONE), slots(r), slots(r), slots(r), slots(r)
    for i, held in enumerate(running):
        run[0, 0, i], run_kind[0, 0, i], elapsed[0, 0, i] = i, held.kind, held.elapsed
        run_cpus[0, 0, i], run_gpus[0, 0, i] = held.cpus, held.gpus
    can_act = np.zeros((1, n), dtype=np.bool_)
    can_act[0, 0] = True
    return EdgeView(
        time=np.zeros(1, dtype=np.int64),
        free=np.array([[room.free or (0, 0) for room in rooms]], dtype=np.int64),
        capacity=np.array([room.capacity for room in rooms], dtype=np.int64),
        queued=np.zeros((1, n), dtype=np.int64),
        can_act=can_act,
        task=task,
        kind=kind,
        waited=waited,
        reach=reach,
        due=due,
        run_task=run,
        run_kind=run_kind,
        run_cpus=run_cpus,
        run_gpus=run_gpus,
        run_elapsed=elapsed,
    )


def _known_room(rooms: tuple[ClusterRoom, ...]) -> Ints:
    """Return (1, N, N, 2) the first cluster's belief of every cluster's free room."""
    known = np.array([room.free if room.free is not None else (NONE, NONE) for room in rooms], dtype=np.int64)
    return np.broadcast_to(known, (1, len(rooms), len(rooms), 2))


def _explain_choice(
    tasks: tuple[ElasticTask, ...],
    rule: PricedRule,
    view: EdgeView,
    believed: Ints,
    choice: Choice,
    policy: str,
) -> Sizing:
    """Return the first cluster's choice with its reasons."""
    slot = int(choice.slot[0, 0])
    best = best_anywhere(rule, view.capacity, view.kind, view.reach)[0, 0]
    reasons = _pass_over_reasons(tasks, rule, view, believed, slot)
    prices = rule.prices
    if slot == NONE:
        return Sizing(
            None,
            0,
            0,
            policy,
            prices.gpu_price,
            prices.cpu_price,
            prices.patience,
            0.0,
            0.0,
            0.0,
            (),
            reasons,
        )
    one = tasks[slot]
    cpus, gpus = int(choice.cpus[0, 0]), int(choice.gpus[0, 0])
    return Sizing(
        task=one.task,
        cpus=cpus,
        gpus=gpus,
        policy=policy,
        gpu_price=prices.gpu_price,
        cpu_price=prices.cpu_price,
        patience=prices.patience,
        duration=float(rule.durations[one.kind, cpus, gpus]),
        cost=float(rule.value[one.kind, cpus, gpus]),
        best_cost=float(best[slot]),
        alternatives=_alternatives(rule, one.kind, (cpus, gpus), view),
        passed_over=reasons,
    )


def _alternatives(
    rule: PricedRule, kind: int, chosen: tuple[int, int], view: EdgeView
) -> tuple[Alternative, ...]:
    """Return the cheapest other sizes that fit, one per number of GPUs."""
    room = np.minimum(view.free[0, 0], rule.limit)
    value = rule.value[kind, : room[0] + 1, : room[1] + 1]
    cpus = np.argmin(value, axis=0)
    found = [
        Alternative(int(c), g, float(rule.durations[kind, c, g]), float(value[c, g]))
        for g, c in enumerate(cpus)
        if np.isfinite(value[c, g]) and (int(c), g) != chosen
    ]
    found.sort(key=lambda other: (other.cost, other.gpus))
    return tuple(found[:ALTERNATIVES_MAX])


def _pass_over_reasons(
    tasks: tuple[ElasticTask, ...], rule: PricedRule, view: EdgeView, believed: Ints, slot: int
) -> tuple[tuple[int, str], ...]:
    """Return the reason why each of the other tasks was not taken."""
    allowed, cost = acceptable_tasks(rule, view, view.free)
    ours = best_here(rule, view, believed, cost)
    best = best_anywhere(rule, view.capacity, view.kind, view.reach)
    out: list[tuple[int, str]] = []
    for i, one in enumerate(tasks):
        if i == slot:
            continue
        now, ideal = float(cost[0, 0, i]), float(best[0, 0, i])
        if not np.isfinite(now):
            reason = "its minimum does not fit into the free room"
        elif not allowed[0, 0, i]:
            reason = f"waits for room: {now:.2f} now against {ideal:.2f} at best"
        elif not ours[0, 0, i]:
            reason = "another cluster it reaches has a better offer now"
        else:
            reason = "comes after the chosen task" if slot != NONE else "held back by the network"
        out.append((one.task, reason))
    return tuple(out)
