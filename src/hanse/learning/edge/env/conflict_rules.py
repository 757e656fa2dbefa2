"""Conflict rules for a task that several clusters chose: the Bayes rule of source 002, and the index rule.

Pr(cluster | task) is proportional to Pr(task | cluster) * Pr(cluster). The first factor is the probability
with which the cluster pointed at the task; the second is a softmax over the competitors of their headroom,
the number of such tasks at their minimum that fit into what is free. The softmax's denominator is the same
for all competitors, so the largest ``log Pr(task | cluster) + headroom`` wins, and no normalisation is
needed.
"""

import numpy as np

from hanse.learning.edge.env.policy_interface import NONE, Flags, Floats, Ints


def bayes_score(preference: Floats, free: Ints, minimum: Ints) -> Floats:
    """Return the log of the unnormalised Pr(cluster | task), shape (E, N).

    ``minimum`` is (E, N, 2), of the chosen task.
    """
    headroom = (free / np.maximum(minimum, 1)).min(axis=-1)
    return np.asarray(preference + headroom)


def winners(task: Ints, score: Floats, tie: Floats) -> Flags:
    """Flag the clusters that keep the task they chose, shape (E, N).

    ``task`` is ``NONE`` where the cluster passed (such a cluster wins nothing). The larger score wins; among
    equal scores the larger ``tie``; among equal ties the lower index.
    """
    chosen = task != NONE
    index = np.arange(task.shape[1])
    same = (task[:, :, None] == task[:, None, :]) & chosen[:, :, None]
    mine_score, their_score = score[:, :, None], score[:, None, :]
    mine_tie, their_tie = tie[:, :, None], tie[:, None, :]
    lower = index[None, :, None] > index[None, None, :]
    beaten = (their_score > mine_score) | (
        (their_score == mine_score) & ((their_tie > mine_tie) | ((their_tie == mine_tie) & lower))
    )
    return np.asarray(chosen & ~(same & beaten).any(axis=2))
