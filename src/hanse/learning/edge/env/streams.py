"""Arrival streams: tasks, their times, and the clusters they reach. One seed, one stream, in any batch."""

import msgspec
import numpy as np

from hanse.learning.edge.env.policy_interface import Flags, Ints
from hanse.learning.edge.env.setting import Setting


class Streams(msgspec.Struct, frozen=True, eq=False):
    """Tasks of E episodes in order of arrival. Axes: episode, task, cluster."""

    seed: Ints
    """(E,) seed of the stream; also keys the noise."""
    arrival: Ints
    """(E, T) step of arrival, not decreasing."""
    kind: Ints
    """(E, T) row of the speed book."""
    connected: Flags
    """(E, T, N) clusters that can run the task; at least one."""
    home: Ints
    """(E, T) cluster that holds its data, one of the connected."""

    def take(self, rows: Ints) -> "Streams":
        """Return the streams of some episodes, in the given order; a row may be named more than once."""
        return Streams(
            seed=self.seed[rows],
            arrival=self.arrival[rows],
            kind=self.kind[rows],
            connected=self.connected[rows],
            home=self.home[rows],
        )


def one_stream(setting: Setting, seed: int) -> tuple[Ints, Ints, Flags, Ints]:
    """Return arrival steps, kinds, connections and homes of one episode.

    At every step from 0 on, Poisson(arrival rate) tasks arrive until there are enough; kinds are uniform; a
    task reaches a uniform number of clusters from 1 to N, a uniform subset of that size.
    """
    rng = np.random.default_rng(seed)  # noqa: TID251 - the seed is the caller's
    tasks, clusters = setting.task_count, setting.clusters
    counts: list[int] = []
    total = 0
    while total < tasks:
        batch = rng.poisson(setting.arrival_rate, size=64).tolist()
        counts.extend(batch)
        total += sum(batch)
    arrival = np.repeat(np.arange(len(counts)), counts)[:tasks]
    kind = rng.integers(0, len(setting.speed_table.names), size=tasks)
    size = rng.integers(1, clusters + 1, size=tasks)
    rank = rng.random((tasks, clusters)).argsort(axis=1).argsort(axis=1)
    connected = rank < size[:, None]
    home = rank.argmin(axis=1)
    return arrival.astype(np.int64), kind.astype(np.int64), connected, home.astype(np.int64)


def make_streams(setting: Setting, seeds: list[int]) -> Streams:
    """Return streams for these seeds, stacked."""
    parts = [one_stream(setting, seed) for seed in seeds]
    return Streams(
        seed=np.array(seeds, dtype=np.int64),
        arrival=np.stack([part[0] for part in parts]),
        kind=np.stack([part[1] for part in parts]),
        connected=np.stack([part[2] for part in parts]),
        home=np.stack([part[3] for part in parts]),
    )
