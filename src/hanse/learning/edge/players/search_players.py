"""Players that search: with the true future (the upper anchor) or with imagined ones (a policy)."""

import math

import numpy as np

from hanse.learning.edge.env.keyed_random import derive_key, uniform
from hanse.learning.edge.env.policy_interface import Ints, all_pass
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.world import EdgeWorld, StepResult
from hanse.learning.edge.players.play import Player
from hanse.learning.edge.policies.priced import PricedRule
from hanse.learning.edge.policies.search import FutureArrivals, search_turn

NEVER = 1 << 30


def true_future(world: EdgeWorld, horizon: int) -> FutureArrivals:
    """Return the arrivals within the horizon, known to the upper anchor only."""
    s, streams = world.state, world.streams
    soon = (streams.arrival > s.time[:, None]) & (streams.arrival <= s.time[:, None] + horizon)
    width = max(int(soon.sum(axis=1).max(initial=0)), 1)
    index = np.minimum(s.arrived[:, None] + np.arange(width), streams.arrival.shape[1] - 1)
    valid = np.arange(width) < soon.sum(axis=1)[:, None]
    rows = np.arange(world.episodes)[:, None]
    bits = np.int64(1) << np.arange(streams.connected.shape[2])
    return FutureArrivals(
        after=np.where(valid, streams.arrival[rows, index] - s.time[:, None], NEVER)[:, None],
        kind=streams.kind[rows, index][:, None],
        reach=(streams.connected[rows, index] @ bits)[:, None],
    )


def imagined_futures(world: EdgeWorld, setting: Setting, futures: int, horizon: int) -> FutureArrivals:
    """Draw futures by the known law of rate, kinds and reach, keyed by stream and time."""
    shape = (world.episodes, futures)
    key = derive_key(world.streams.seed.astype(np.uint64)[:, None], np.arange(futures)[None, :] + 100)
    key = derive_key(key, world.state.time[:, None])
    counts = _poisson(setting.arrival_rate, uniform(derive_key(key[..., None], np.arange(horizon))))
    width = max(int(counts.sum(axis=2).max()), 1)
    ends = np.cumsum(counts, axis=2)
    number = np.arange(width)
    after = 1 + (number[None, None, :, None] >= ends[:, :, None, :]).sum(axis=3)
    after = np.where(number < ends[..., -1:], after, NEVER)
    drawn = derive_key(key[..., None], number + 1_000)
    kinds, clusters = len(setting.speed_table.names), setting.clusters
    kind = np.minimum((uniform(drawn) * kinds).astype(np.int64), kinds - 1)
    size = 1 + np.minimum(
        (uniform(derive_key(drawn, np.full((*shape, width), 1))) * clusters).astype(np.int64), clusters - 1
    )
    batches = uniform(derive_key(drawn[..., None], np.arange(clusters) + 2))
    rank = batches.argsort(axis=3).argsort(axis=3)
    bits = np.int64(1) << np.arange(clusters)
    return FutureArrivals(after=after, kind=kind, reach=(rank < size[..., None]) @ bits)


def _poisson(rate: float, chance: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ints:
    """Return Poisson numbers by inversion."""
    top = int(rate + 10 * math.sqrt(rate) + 10)
    weights = [math.exp(-rate + k * math.log(rate) - math.lgamma(k + 1)) for k in range(top)]
    return np.searchsorted(np.cumsum(weights), chance).astype(np.int64)


def search_player(rule: PricedRule, setting: Setting, *, futures: int, horizon: int = 16) -> Player:
    """Return a player that searches over the rule; ``futures`` 0 means the true future."""

    def player(world: EdgeWorld) -> StepResult:
        view = world.view()
        future = (
            imagined_futures(world, setting, futures, horizon) if futures else true_future(world, horizon)
        )
        choice = all_pass(world.episodes, setting.clusters)
        for n in range(setting.clusters):
            choice = search_turn(rule, view, n, choice, future, horizon)
        return world.step(choice)

    return player
