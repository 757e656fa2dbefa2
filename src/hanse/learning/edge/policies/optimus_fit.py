"""Speed curve of Optimus, fitted to a table: as published, and with the axes in the right order.

The curve is ``1 / (a/w + b + c*w/p + d*w + e*p)`` for ``p`` CPUs and ``w`` GPUs. Source 002's code lists the
CPUs of the grid with the CPU index running fastest and the speeds with the GPU index running fastest, so its
fit has the two axes exchanged: it assumes that CPUs help a task that depends on GPUs. ``transposed=True``
repeats that.
"""

from typing import Final

import numpy as np

from hanse.learning.edge.env.policy_interface import Floats

ROUNDS_MAX: Final = 500
"""Levenberg-Marquardt rounds; the fits here settle in fewer than 100."""


def fit_speed(speed: Floats, *, transposed: bool) -> Floats:
    """Fit the speed of every kind at every size, shape (K, C+1, G+1); 0 where a resource is 0."""
    kinds, wide, high = speed.shape
    assert not transposed or wide == high, "the published exchange of axes is defined on a square grid"
    p, w = np.meshgrid(np.arange(1.0, wide), np.arange(1.0, high), indexing="ij")
    believed = np.zeros_like(speed)
    for kind in range(kinds):
        seen = speed[kind].T if transposed else speed[kind]
        terms = np.stack([1 / w, np.ones_like(w), w / p, w, p], axis=-1).reshape(-1, 5)
        weights = fit_reciprocal(terms, seen[1:, 1:].ravel())
        curve = terms @ weights
        believed[kind, 1:, 1:] = np.where(curve > 0, 1 / curve, 0.0).reshape(wide - 1, high - 1)
    return believed


def fit_reciprocal(terms: Floats, seen: Floats) -> Floats:
    """Fit ``1 / (terms @ weights)`` to ``seen`` with least squares by Levenberg-Marquardt from all ones."""
    weights = np.ones(terms.shape[1])
    damping = 1e-3
    model = 1 / (terms @ weights)
    error = float(((model - seen) ** 2).sum())
    for _ in range(ROUNDS_MAX):
        slope = -terms * (model**2)[:, None]
        normal = slope.T @ slope
        downhill = slope.T @ (seen - model)
        move = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), downhill)
        trial = 1 / (terms @ (weights + move))
        trial_error = float(((trial - seen) ** 2).sum())
        if trial_error < error:
            settled = error - trial_error < 1e-14 * max(error, 1e-12)
            weights, model, error = weights + move, trial, trial_error
            damping = max(damping / 3, 1e-12)
            if settled:
                break
        else:
            damping *= 4
            if damping > 1e12:
                break
    return np.asarray(weights)
