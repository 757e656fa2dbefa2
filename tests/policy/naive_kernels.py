"""The meaning of the kernels in plain Python, and random clusters to compare on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from hanse.model.resources import Vector
from hanse.policy.kernels import BEST_FIT, CHEAPEST, FIRST, SPREAD
from hanse.policy.node_columns import CAPACITY_MAX, Column, MaskWords, NodeColumns, mask_words


def flat_mask(mask: MaskWords) -> int:
    return sum(word << (64 * at) for at, word in enumerate(mask.tolist()))


def naive_leftover(room: NodeColumns, ask: Vector, node: int) -> int:
    total = 0
    for row in range(room.dims):
        has, left = int(room.capacity[row, node]), int(room.free[row, node]) - ask[row]
        if has > 0:
            total += min(left, has) * 1024 // has
    return total


def naive_can_take(room: NodeColumns, ask: Vector, mask: int, node: int) -> bool:
    return bool(mask >> node & 1) and all(int(room.free[row, node]) >= ask[row] for row in range(room.dims))


def naive_pick(
    room: NodeColumns,
    ask: Vector,
    mask: int,
    start: int,
    count: int,
    mode: int,
    each_max: int,
    cost: Column | None,
) -> list[int]:
    chosen: list[int] = []
    circle = [(start + step) % room.nodes for step in range(room.nodes)]
    while len(chosen) < count:
        best, best_key = -1, 0
        for node in circle:
            if not naive_can_take(room, ask, mask, node) or 0 < each_max <= chosen.count(node):
                continue
            left = naive_leftover(room, ask, node)
            key = {FIRST: 0, BEST_FIT: left, SPREAD: -left, CHEAPEST: 0 if cost is None else int(cost[node])}[
                mode
            ]
            if best < 0 or key < best_key:
                best, best_key = node, key
        if best < 0:
            break
        room.free[:, best] -= np.array(ask)
        chosen.append(best)
    return chosen


def naive_settle(
    room: NodeColumns, ask: Vector, mask: int, nodes: Sequence[int], start: int, each_max: int
) -> list[int]:
    settled: list[int] = []
    for proposed in nodes:
        tries = [proposed] if 0 <= proposed < room.nodes else []
        tries += [(start + step) % room.nodes for step in range(room.nodes)]
        got = -1
        for node in tries:
            if naive_can_take(room, ask, mask, node) and not 0 < each_max <= settled.count(node):
                got = node
                break
        if got >= 0:
            room.free[:, got] -= np.array(ask)
        settled.append(got)
    return settled


@dataclass
class Case:
    room: NodeColumns
    ask: Vector
    mask: MaskWords
    start: int
    cost: Column


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A cluster in some state and an ask that often fits: hypothesis picks the shape, a seed fills it."""
    dims, nodes = draw(st.integers(1, 5)), draw(st.integers(0, 200))
    scale = draw(st.sampled_from([3, 40, 1_000_003, CAPACITY_MAX]))
    few_kinds, believed = draw(st.booleans()), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    capacity = rng.integers(0, scale, (nodes, dims), endpoint=True)
    if few_kinds and nodes:  # many ties
        capacity[:] = capacity[rng.integers(0, min(nodes, 2), nodes)]
    room = NodeColumns([tuple(int(amount) for amount in row) for row in capacity], checked=not believed)
    if nodes:
        room.free[:] = (room.capacity * rng.choice([0.0, 0.25, 0.5, 1.0], room.free.shape)).astype(np.int64)
        if believed:
            room.free += rng.integers(-scale // 4, scale // 4, room.free.shape, endpoint=True)
    part = draw(st.sampled_from([0, 2, 5, 20]))
    ask = (
        tuple(int(amount) for amount in rng.integers(0, scale // part, dims, endpoint=True))
        if part
        else (0,) * dims
    )
    mask = rng.integers(0, 1 << 64, mask_words(nodes), dtype=np.uint64)  # bits beyond the last node too
    kind = draw(st.sampled_from(["some", "few", "all"]))
    if kind == "all":
        mask[:] = (1 << 64) - 1
    elif kind == "few":
        for _ in range(4):
            mask &= rng.integers(0, 1 << 64, mask_words(nodes), dtype=np.uint64)
    cost = rng.choice(np.array([-(1 << 63), -1, 0, 5, (1 << 63) - 1]), nodes)
    return Case(room, ask, mask, draw(st.integers(-3, 400)), cost)
