"""Inputs of the network: columns of small numbers, from a view, the believed durations and the rule's answer.

No feature names a kind or a cluster: a task is described by its believed durations at several sizes, so a
trained network handles new kinds, loads and cluster sets without a change of shape. The rule's answer is
among the features; the network learns where to differ from it. A warden asks for one state at a time, so the
cost is the number of array operations, not their size.
"""

from typing import Final

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import NONE, EdgeView, Flags, Floats, Ints
from hanse.learning.edge.policies.feature_table import SIZES_MAX, TABLE_FEATURES, Singles
from hanse.learning.edge.policies.priced import PricedRule, RuleStanding, own_pick, rule_standing

CLUSTER_FEATURES: Final = 18
TASK_FEATURES: Final = 20
RUNNING_FEATURES: Final = 6

RULE_PICK_COLUMN: Final = 19
"""Column of a task's features that marks the slot the rule would choose alone."""

COST_UNKNOWN: Final = 1e6
"""Cost encoded where a task does not fit; a tenth of it where a task reaches no cluster."""

_SOON: Final = 5
"""Next steps for each of which the room believed to come free is encoded."""
_STEPS: Final = np.arange(_SOON)


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
    """(B, N, N) summaries (last axis) that each cluster (second axis) has."""


def encode(rule: PricedRule, view: EdgeView, believed: Ints) -> Features:
    """Return the features of a view.

    ``believed`` (E, N, N, 2) is each cluster's belief of every cluster's free room, -1: none.
    """
    clusters = view.task.shape[1]
    stand = rule_standing(rule, view, believed)
    filled = view.task != NONE
    may_choose = filled & (stand.cost < np.inf) & view.can_act[:, :, None]
    left = _remaining_steps(rule, view)
    return Features(
        cluster=_cluster_columns(view, filled, left),
        task=_task_columns(rule, view, believed, may_choose, stand),
        running=_running_columns(view, left),
        may_choose=may_choose,
        known=(believed[..., 1] >= 0) | np.eye(clusters, dtype=np.bool_),
    )


def _remaining_steps(rule: PricedRule, view: EdgeView) -> Floats:
    """Return (E, N, R) steps that running tasks are believed to need still, at least 1; 0 in empty slots."""
    cpus, gpus = np.minimum(view.run_cpus, rule.limit[0]), np.minimum(view.run_gpus, rule.limit[1])
    _, wide, high = rule.durations.shape
    whole = rule.durations.ravel().take((view.run_kind * wide + cpus) * high + gpus)
    left: Floats = np.maximum(whole - view.run_elapsed, 1.0)
    left[left == np.inf] = 1.0
    left[view.run_task == NONE] = 0.0
    return left


def _cluster_columns(view: EdgeView, filled: Flags, left: Floats) -> Singles:
    episodes, clusters, window = view.task.shape
    out = np.empty((episodes, clusters, CLUSTER_FEATURES), dtype=np.float32)
    np.multiply(view.free, 1 / 16.0, out=out[..., 0:2], casting="same_kind")
    out[..., 2:4] = view.capacity / 32.0
    np.divide(view.free, np.maximum(view.capacity, 1), out=out[..., 4:6], casting="same_kind")
    out[..., 6] = filled.sum(axis=2) / window
    out[..., 7] = np.log1p(view.queued) / 4.0
    out[..., 8] = (left > 0).sum(axis=2) / 8.0
    out[..., 9] = view.can_act
    soon = (np.ceil(left)[..., None] == _STEPS + 1).astype(np.float32)
    held = np.stack([view.run_gpus, view.run_cpus], axis=2).astype(np.float32)
    coming = held @ soon
    np.multiply(coming[:, :, 0], 1 / 16.0, out=out[..., 10 : 10 + _SOON])
    np.multiply(coming[:, :, 1, 0], 1 / 16.0, out=out[..., 15])
    out[..., 16] = out[..., 6].mean(axis=1, keepdims=True)
    np.minimum(view.waited.max(axis=2) / 10.0, 2.0, out=out[..., 17], casting="same_kind")
    return out


def _task_columns(
    rule: PricedRule, view: EdgeView, believed: Ints, may_choose: Flags, stand: RuleStanding
) -> Singles:
    episodes, clusters, window = view.task.shape
    out = np.empty((episodes, clusters, window, TASK_FEATURES), dtype=np.float32)
    filled = view.task != NONE
    out[..., :TABLE_FEATURES] = rule.feature_table.take(rule.table_index(view.kind, view.free), axis=0)
    ratio = np.minimum(stand.cost, COST_UNKNOWN) / np.minimum(stand.best, COST_UNKNOWN / 10)
    out[..., 9] = np.log(np.minimum(np.maximum(ratio, 1.0), np.e**2))
    out[..., 10] = stand.allowed
    out[..., 11] = stand.ours
    out[..., 12] = np.minimum(view.waited / 10.0, 2.0)
    options = stand.reached.sum(axis=-1)
    out[..., 13] = options / clusters
    out[..., 14] = options == 1
    others = stand.reached & ~np.eye(clusters, dtype=np.bool_)[:, None]
    out[..., 15] = (others * np.maximum(believed[:, :, None, :, 1], 0)).max(axis=-1) / 16.0
    out[..., 16] = may_choose
    out[..., 17] = (view.due / 20.0).clip(-1, 1)
    out[..., 18] = 1.0 / np.maximum(options, 1)
    pick = own_pick(view, stand.allowed & stand.ours)
    out[..., RULE_PICK_COLUMN] = pick[..., None] == np.arange(window)
    out *= filled[..., None]
    return out


def _running_columns(view: EdgeView, left: Floats) -> Singles:
    out = np.empty((*view.run_task.shape, RUNNING_FEATURES), dtype=np.float32)
    filled = left > 0
    out[..., 0] = filled
    np.multiply(view.run_cpus, 1 / 16.0, out=out[..., 1], casting="same_kind")
    np.multiply(view.run_gpus, 1 / 16.0, out=out[..., 2], casting="same_kind")
    out[..., 3] = np.minimum(view.run_elapsed / 10.0, 2.0)
    out[..., 4] = np.minimum(left / 10.0, 2.0)
    out[..., 5] = filled / np.maximum(left, 1.0)
    return out


def size_masks(rule: PricedRule, kind: Ints, free: Ints) -> tuple[Flags, Flags]:
    """Return masks of CPUs and GPUs (1 to 16, last axis) that a task of ``kind`` may get from ``free`` (...,
    2)."""
    sizes = np.arange(1, SIZES_MAX + 1)
    most = np.minimum(np.minimum(free, rule.limit), SIZES_MAX)
    least = rule.minimum[kind]
    masks = (sizes >= least[..., None]) & (sizes <= most[..., None])
    return np.asarray(masks[..., 0, :]), np.asarray(masks[..., 1, :])
