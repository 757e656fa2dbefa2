"""Outages of nodes, drawn from the seed: exponential times between them and lengths, each node by itself."""

from typing import Final

import numpy as np

from hanse.sim.worlds.columns import Ints, SmallInts, WorldColumns
from hanse.sim.worlds.drawing.streams import DrawStream, generator_of
from hanse.sim.worlds.world import World

SPAN_HORIZONS: Final = 4
"""Horizons over which outages are drawn: a run goes on after the last arrival until all work has ended."""
LENGTH_LEAST: Final = 1_000_000
"""Shortest outage in microseconds."""


def draw_outages(
    world: World, columns: WorldColumns, seed: int, stretch: int
) -> tuple[SmallInts, Ints, Ints]:
    """Return nodes, beginnings and ends of the outages in order of time; ties: the node."""
    rules, nodes = world.failures, len(columns.node_cluster)
    generator = generator_of(seed, DrawStream.OUTAGES, stretch)
    found: list[tuple[Ints, Ints, Ints]] = []
    clock = np.zeros(nodes, np.int64)
    span = SPAN_HORIZONS * world.work.horizon
    while rules.between and bool((clock < span).any()):
        begin = clock + np.rint(generator.standard_exponential(nodes) * rules.between).astype(np.int64) + 1
        length = np.rint(generator.standard_exponential(nodes) * rules.length).astype(np.int64)
        clock = begin + np.maximum(length, LENGTH_LEAST)
        hit = np.flatnonzero(begin < span)
        found.append((hit, begin[hit], clock[hit]))
    if not found:
        none = np.zeros(0, np.int64)
        return none.astype(np.int32), none, none
    node, begin, until = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.lexsort((node, begin))
    return node[order].astype(np.int32), begin[order], until[order]
