"""Players that search: with the true future (the upper anchor) or with imagined ones (a policy)."""

import math

import numpy as np

from hanse.policy.edge.draws import mixed, uniform
from hanse.policy.edge.priced import PricedRule
from hanse.policy.edge.search import Future, search_turn
from hanse.policy.edge.view import Ints, nobody
from hanse.sim.edge.play import Player
from hanse.sim.edge.setting import Setting
from hanse.sim.edge.world import Stepped, World

NEVER = 1 << 30


def true_future(world: World, horizon: int) -> Future:
    """Return the arrivals within the horizon, known to the upper anchor only."""
    s, streams = world.state, world.streams
    soon = (streams.arrival > s.time[:, None]) & (streams.arrival <= s.time[:, None] + horizon)
    width = max(int(soon.sum(axis=1).max(initial=0)), 1)
    index = np.minimum(s.arrived[:, None] + np.arange(width), streams.arrival.shape[1] - 1)
    valid = np.arange(width) < soon.sum(axis=1)[:, None]
    rows = np.arange(world.episodes)[:, None]
    bits = np.int64(1) << np.arange(streams.connected.shape[2])
    return Future(
        after=np.where(valid, streams.arrival[rows, index] - s.time[:, None], NEVER)[:, None],
        kind=streams.kind[rows, index][:, None],
        reach=(streams.connected[rows, index] @ bits)[:, None],
    )


def imagined_futures(world: World, setting: Setting, futures: int, horizon: int) -> Future:
    """Draw futures by the known law of rate, kinds and reach, keyed by stream and time."""
    shape = (world.episodes, futures)
    key = mixed(world.streams.seed.astype(np.uint64)[:, None], np.arange(futures)[None, :] + 100)
    key = mixed(key, world.state.time[:, None])
    counts = _poisson(setting.arrival_rate, uniform(mixed(key[..., None], np.arange(horizon))))
    width = max(int(counts.sum(axis=2).max()), 1)
    ends = np.cumsum(counts, axis=2)
    number = np.arange(width)
    after = 1 + (number[None, None, :, None] >= ends[:, :, None, :]).sum(axis=3)
    after = np.where(number < ends[..., -1:], after, NEVER)
    drawn = mixed(key[..., None], number + 1_000)
    kinds, clusters = len(setting.book.names), setting.clusters
    kind = np.minimum((uniform(drawn) * kinds).astype(np.int64), kinds - 1)
    size = 1 + np.minimum(
        (uniform(mixed(drawn, np.full((*shape, width), 1))) * clusters).astype(np.int64), clusters - 1
    )
    batches = uniform(mixed(drawn[..., None], np.arange(clusters) + 2))
    rank = batches.argsort(axis=3).argsort(axis=3)
    bits = np.int64(1) << np.arange(clusters)
    return Future(after=after, kind=kind, reach=(rank < size[..., None]) @ bits)


def _poisson(rate: float, chance: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ints:
    """Return Poisson numbers by inversion."""
    top = int(rate + 10 * math.sqrt(rate) + 10)
    weights = [math.exp(-rate + k * math.log(rate) - math.lgamma(k + 1)) for k in range(top)]
    return np.searchsorted(np.cumsum(weights), chance).astype(np.int64)


def by_search(rule: PricedRule, setting: Setting, *, futures: int, horizon: int = 16) -> Player:
    """Return a player that searches over the rule; ``futures`` 0 means the true future."""

    def player(world: World) -> Stepped:
        view = world.view()
        future = (
            imagined_futures(world, setting, futures, horizon) if futures else true_future(world, horizon)
        )
        choice = nobody(world.episodes, setting.clusters)
        for n in range(setting.clusters):
            choice = search_turn(rule, view, n, choice, future, horizon)
        return world.step(choice)

    return player
