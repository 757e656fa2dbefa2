"""Thinning a stream of chunks: every k-th job, a seeded fraction of the jobs, a window of time.

What belongs to one DAG (has one ``parent``) stays or goes as a whole.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy as np

from hanse.sim.traces.chunk import Ints, JobChunk, take

_MIX_ADD: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_ONE: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_TWO: Final = np.uint64(0x94D049BB133111EB)


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """What to keep; the conditions hold together. Times in microseconds since the start of the trace."""

    every: int = 1
    """Keep one job (or DAG) of this many, beginning with the first."""
    fraction: float = 1.0
    """Keep about this share, chosen by the seed and the job's (the DAG's) number alone."""
    seed: int = 0
    begin: int = 0
    end: int | None = None
    """Keep arrivals from ``begin`` up to, but not at, ``end``; they then count from ``begin``."""


def sample(chunks: Iterable[JobChunk], wish: Sampling) -> Iterator[JobChunk]:
    """The chunks of what is kept; empty ones are left out."""
    seen, last = 0, None
    for chunk in chunks:
        if not chunk.jobs:
            continue
        # the running number of each entry's DAG; entries of one DAG stand together
        first = np.concatenate([[last is None or chunk.parent[0] != last], np.diff(chunk.parent) != 0])
        number = seen + np.cumsum(first) - 1
        seen, last = int(number[-1]) + 1, chunk.parent[-1]
        kept = (chunk.arrival >= wish.begin) & (number % wish.every == 0)
        if wish.end is not None:
            kept &= chunk.arrival < wish.end
        if wish.fraction < 1.0:
            kept &= lottery(chunk.parent, wish.seed) < wish.fraction
        if not kept.any():
            continue
        thin = take(chunk, np.flatnonzero(kept))
        yield msgspec.structs.replace(thin, arrival=thin.arrival - wish.begin)


def lottery(numbers: Ints, seed: int) -> "np.typing.NDArray[np.float64]":
    """A number in [0, 1) for each number, by the finaliser of SplitMix64: the same on every machine."""
    with np.errstate(over="ignore"):
        state = numbers.astype(np.uint64) + np.uint64(seed % (1 << 64)) * _MIX_ADD + _MIX_ADD
        for _ in range(2):  # twice, so that neighbouring seeds and numbers have nothing in common
            state = (state ^ (state >> np.uint64(30))) * _MIX_ONE
            state = (state ^ (state >> np.uint64(27))) * _MIX_TWO
            state ^= state >> np.uint64(31)
            state += _MIX_ADD
    return (state >> np.uint64(11)).astype(np.float64) / (1 << 53)
