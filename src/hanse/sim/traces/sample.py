"""Sampling of a stream of chunks: every k-th job, a seeded fraction of the jobs, a window of time.

The entries of one DAG (with one ``parent``) stay or go together.
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
    """Conditions for a job to stay; all must hold. Times in microseconds since the start of the trace."""

    every: int = 1
    """Keep one job (or DAG) of this many, beginning with the first."""
    fraction: float = 1.0
    """Keep about this share, chosen by the seed and the number of the job (or DAG) alone."""
    seed: int = 0
    begin: int = 0
    end: int | None = None
    """Keep arrivals from ``begin`` until before ``end``; they then count from ``begin``."""


def sample(chunks: Iterable[JobChunk], sampling: Sampling) -> Iterator[JobChunk]:
    """Yield the chunks of the jobs that stay; empty ones are left out."""
    dag_count, last = 0, None
    for chunk in chunks:
        if not chunk.job_count:
            continue
        # the running number of each entry's DAG; entries of one DAG are adjacent
        first = np.concatenate([[last is None or chunk.parent[0] != last], np.diff(chunk.parent) != 0])
        number = dag_count + np.cumsum(first) - 1
        dag_count, last = int(number[-1]) + 1, chunk.parent[-1]
        kept = (chunk.arrival >= sampling.begin) & (number % sampling.every == 0)
        if sampling.end is not None:
            kept &= chunk.arrival < sampling.end
        if sampling.fraction < 1.0:
            kept &= draw_fractions(chunk.parent, sampling.seed) < sampling.fraction
        if not kept.any():
            continue
        thin = take(chunk, np.flatnonzero(kept))
        yield msgspec.structs.replace(thin, arrival=thin.arrival - sampling.begin)


def draw_fractions(numbers: Ints, seed: int) -> "np.typing.NDArray[np.float64]":
    """Return a number in [0, 1) per number, by the finaliser of SplitMix64: the same on every computer."""
    with np.errstate(over="ignore"):
        state = numbers.astype(np.uint64) + np.uint64(seed % (1 << 64)) * _MIX_ADD + _MIX_ADD
        for _ in range(2):  # twice, so that neighbouring seeds and numbers are uncorrelated
            state = (state ^ (state >> np.uint64(30))) * _MIX_ONE
            state = (state ^ (state >> np.uint64(27))) * _MIX_TWO
            state ^= state >> np.uint64(31)
            state += _MIX_ADD
    return (state >> np.uint64(11)).astype(np.float64) / (1 << 53)
