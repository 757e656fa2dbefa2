"""What the network is shown: columns of small numbers, made from a view, the believed durations and the
rule's own opinion.

Nothing names a kind or a cluster: a task is described by how long it is believed to take at several sizes,
so a trained network meets new kinds, loads and cluster sets without a change of shape. The rule's answer is
among the features; the network learns where to differ from it.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hanse.policy.edge.baselines import feasible
from hanse.policy.edge.priced import PricedRule, acceptable, best_anywhere, leave_to_better
from hanse.policy.edge.view import NONE, Flags, Ints, View, reach_flags

Singles = NDArray[np.float32]

CLUSTER_FEATURES: Final = 18
TASK_FEATURES: Final = 18
RUNNING_FEATURES: Final = 6
SIZES_MAX: Final = 16
"""The heads size a task with 1 to this many CPUs and GPUs."""

RATIO_UNKNOWN: Final = 1e3
"""Cost ratio shown for what does not fit at all."""

_PROBES: Final = (1, 2, 4, 8, 16)
"""GPUs at which a task's believed duration is shown."""
_SOON: Final = 5
"""Room that is believed to come free is shown for each of this many next steps."""


class Features(msgspec.Struct, frozen=True, eq=False):
    """Inputs of the network for B states of N clusters."""

    cluster: Singles
    """(B, N, CLUSTER_FEATURES)."""
    task: Singles
    """(B, N, P, TASK_FEATURES)."""
    running: Singles
    """(B, N, R, RUNNING_FEATURES)."""
    may_choose: Flags
    """(B, N, P) pending slots that may be chosen."""
    known: Flags
    """(B, N, N) whose summary (last axis) each cluster (second axis) has."""


def encode(rule: PricedRule, view: View, believed: Ints) -> Features:
    """Features of a view.

    ``believed`` (E, N, N, 2) is each cluster's idea of everyone's free room, -1: none.
    """
    clusters = view.task.shape[1]
    known = np.asarray((believed >= 0).all(axis=-1)) | np.eye(clusters, dtype=np.bool_)
    may_choose = feasible(view, rule.minimum)
    return Features(
        cluster=_cluster_columns(rule, view),
        task=_task_columns(rule, view, believed, may_choose),
        running=_running_columns(rule, view),
        may_choose=may_choose,
        known=known,
    )


def _left(rule: PricedRule, view: View) -> NDArray[np.float64]:
    """(E, N, R) steps that running tasks are believed to have left, at least 1; 0 in empty slots."""
    size = np.minimum(view.run_cpus, rule.limit[0]), np.minimum(view.run_gpus, rule.limit[1])
    whole = rule.durations[view.run_kind, size[0], size[1]]
    left = np.maximum(np.where(np.isfinite(whole), whole, 1.0) - view.run_elapsed, 1.0)
    return np.where(view.run_task != NONE, left, 0.0)


def _cluster_columns(rule: PricedRule, view: View) -> Singles:
    episodes, clusters, window = view.task.shape
    out = np.zeros((episodes, clusters, CLUSTER_FEATURES), dtype=np.float32)
    out[..., 0:2] = view.free / 16.0
    out[..., 2:4] = view.capacity / 32.0
    out[..., 4:6] = view.free / np.maximum(view.capacity, 1)
    out[..., 6] = (view.task != NONE).sum(axis=2) / window
    out[..., 7] = np.log1p(view.queued) / 4.0
    out[..., 8] = (view.run_task != NONE).sum(axis=2) / 8.0
    out[..., 9] = view.can_act
    left = _left(rule, view)
    for step in range(_SOON):
        soon = (left > step) & (left <= step + 1)
        out[..., 10 + step] = np.where(soon, view.run_gpus, 0).sum(axis=2) / 16.0
    out[..., 15] = np.where((left > 0) & (left <= 1), view.run_cpus, 0).sum(axis=2) / 16.0
    out[..., 16] = out[..., 6].mean(axis=1, keepdims=True)
    out[..., 17] = (view.waited.max(axis=2) / 10.0).clip(0, 2)
    return out


def _task_columns(rule: PricedRule, view: View, believed: Ints, may_choose: Flags) -> Singles:
    episodes, clusters, window = view.task.shape
    out = np.zeros((episodes, clusters, window, TASK_FEATURES), dtype=np.float32)
    room = np.minimum(view.free, rule.limit)[:, :, None, :]
    best = best_anywhere(rule, view.capacity, view.kind, view.reach)
    allowed, cost = acceptable(rule, view, view.free, best)
    known = np.isfinite(cost) & np.isfinite(best)
    ratio = np.log(np.where(known, cost, RATIO_UNKNOWN) / np.where(known, best, 1.0))
    out[..., 0] = 1.0
    out[..., 1:6] = kind_probes(rule)[view.kind]
    out[..., 6] = rule.gpus[view.kind, room[..., 0], room[..., 1]] / 16.0
    out[..., 7] = rule.cpus[view.kind, room[..., 0], room[..., 1]] / 16.0
    out[..., 8] = ratio.clip(0, 2)
    out[..., 9] = allowed
    out[..., 10] = leave_to_better(rule, view, believed, cost)
    out[..., 11] = (view.waited / 10.0).clip(0, 2)
    options = np.bitwise_count(view.reach)
    out[..., 12] = options / clusters
    out[..., 13] = options == 1
    others = reach_flags(view.reach, clusters) & ~np.eye(clusters, dtype=np.bool_)[None, :, None, :]
    out[..., 14] = np.where(others, believed[:, :, None, :, 1], 0).max(axis=-1).clip(0) / 16.0
    out[..., 15] = may_choose
    out[..., 16] = (view.due / 20.0).clip(-1, 1)
    out[..., 17] = 1.0 / np.maximum(options, 1)
    out *= (view.task != NONE)[..., None]
    return out


def kind_probes(rule: PricedRule) -> Singles:
    """(K, 5) log of the least duration at each probed number of GPUs, about 0 to 1."""
    fastest = rule.durations.min(axis=1)
    columns = [fastest[:, min(gpus, fastest.shape[1] - 1)] for gpus in _PROBES]
    steps = np.stack(columns, axis=1)
    return np.asarray(np.log(np.where(np.isfinite(steps), steps, 20.0)) / 3.0, dtype=np.float32)


def _running_columns(rule: PricedRule, view: View) -> Singles:
    filled = view.run_task != NONE
    out = np.zeros((*view.run_task.shape, RUNNING_FEATURES), dtype=np.float32)
    left = _left(rule, view)
    out[..., 0] = filled
    out[..., 1] = view.run_cpus / 16.0
    out[..., 2] = view.run_gpus / 16.0
    out[..., 3] = np.where(filled, view.run_elapsed / 10.0, 0).clip(0, 2)
    out[..., 4] = (left / 10.0).clip(0, 2)
    out[..., 5] = np.where(filled, 1.0 / np.maximum(left, 1.0), 0)
    return out


def size_masks(rule: PricedRule, kind: Ints, free: Ints) -> tuple[Flags, Flags]:
    """CPUs and GPUs (1 to 16, last axis) that a task of ``kind`` may get from ``free`` (..., 2)."""
    sizes = np.arange(1, SIZES_MAX + 1)
    most = np.minimum(np.minimum(free, rule.limit), SIZES_MAX)
    least = rule.minimum[kind]
    masks = (sizes >= least[..., None]) & (sizes <= most[..., None])
    return np.asarray(masks[..., 0, :]), np.asarray(masks[..., 1, :])
