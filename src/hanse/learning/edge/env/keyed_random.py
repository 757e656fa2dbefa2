"""Keyed random numbers: a pure function of their keys.

Pure packages have no generator. A policy or the simulator draws from a key: the same key gives the same
number in every process, in any order and in any batch. So the noise of a task is a property of the task (two
policies on one stream get the same noise), as common-random-number comparisons need. The mixer is the
finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_UNIT: Final = 1.0 / (1 << 53)


def derive_key(key: Keys, name: NDArray[np.int64]) -> Keys:
    """Derive a new key from ``key`` and ``name``; the two broadcast against each other."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is wanted
        z = key + (name.astype(np.uint64) + np.uint64(1)) * _STEP
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def uniform(key: Keys) -> NDArray[np.float64]:
    """Return one number in [0, 1) per key."""
    return np.asarray((key >> np.uint64(11)).astype(np.float64) * _UNIT)


def pick(key: Keys, flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the index of one true flag on the last axis, each equally likely; -1 where none is true."""
    count = flags.sum(axis=-1)
    rank = np.minimum((uniform(key) * count).astype(np.int64), np.maximum(count - 1, 0))
    chosen = np.argmax(np.cumsum(flags, axis=-1) == rank[..., None] + 1, axis=-1)
    return np.where(count > 0, chosen, -1).astype(np.int64)
