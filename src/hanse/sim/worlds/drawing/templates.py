"""Traits of recurring programs and of jobs without history: size, speed by node class, demand, input.

A row is a program: its kind of work, its cores, and lognormal deviations (median 1) from the means of the
kind. Templates have one row each, the same in all work of a world; a job without history has a row of its
own.
"""

from enum import IntEnum

import msgspec
import numpy as np

from hanse.sim.worlds.columns import Floats, Ints
from hanse.sim.worlds.drawing.streams import DrawStream
from hanse.sim.worlds.world import World


class _Trait(IntEnum):
    """Trait that is drawn with a generator of its own; the values are part of every result."""

    CORES = 0
    DEMAND = 1
    BANDWIDTH_SENSITIVITY = 2
    CACHE_SENSITIVITY = 3
    DATA_RATE = 4
    SPEED = 100
    """Speed on the first node class; the next numbers are those of the other classes."""


class TraitRows(msgspec.Struct, frozen=True, eq=False):
    """Traits of R programs."""

    kind: Ints
    """[R] kind of work."""
    cores: Ints
    """[R] cores of a task."""
    speed: Floats
    """[R, Q] speed on each node class."""
    demand_per_core: Floats
    """[R] bytes per second of memory bandwidth."""
    bandwidth_sensitivity: Floats
    cache_sensitivity: Floats
    pollution_per_core: Floats
    data_rate: Floats
    """[R] bytes of input per second of work."""

    @property
    def count(self) -> int:
        """Number of programs."""
        return len(self.kind)


class TemplatePool(msgspec.Struct, frozen=True, eq=False):
    """Templates of a world, and those that each cluster submits for each kind of work."""

    rows: TraitRows
    shared: tuple[Ints, ...]
    """For each kind of work, the rows of its shared templates."""
    local: tuple[tuple[Ints, ...], ...]
    """For each cluster and kind of work, the rows of its local templates."""


def make_pool(world: World) -> TemplatePool:
    """Return the templates of a world: the kinds of work take turns among them."""
    rules, kinds = world.templates, len(world.work_kinds)
    shared = np.arange(rules.shared)
    local = [rules.shared + at * rules.local + np.arange(rules.local) for at in range(len(world.clusters))]
    kind = np.concatenate([shared % kinds, *(np.arange(rules.local) % kinds for _ in world.clusters)])
    rows = draw_rows(world, kind.astype(np.int64), (rules.seed, DrawStream.TEMPLATES))
    return TemplatePool(
        rows=rows,
        shared=tuple(shared[shared % kinds == at] for at in range(kinds)),
        local=tuple(tuple(own[np.arange(rules.local) % kinds == at] for at in range(kinds)) for own in local),
    )


def draw_rows(world: World, kind: Ints, stream: tuple[int, ...]) -> TraitRows:
    """Return the traits of programs of these kinds; a row's numbers do not depend on the rows behind it.

    ``stream``: the seed, the stream and what else names the drawing.
    """
    rules, kinds, rows = world.templates, world.work_kinds, len(kind)
    means = {
        name: np.array([float(getattr(found, name)) for found in kinds])[kind]
        for name in (
            *("bandwidth_per_core", "bandwidth_sensitivity", "cache_sensitivity"),
            *("pollution_per_core", "data_rate"),
        )
    }

    def factors(trait: int, deviation: float) -> Floats:
        return np.exp(deviation * _generator(stream, trait).standard_normal(rows))

    speeds = [
        np.array([node.speed_of(found.name) for found in kinds])[kind]
        * factors(_Trait.SPEED + at, rules.speed_deviation)
        for at, node in enumerate(world.node_classes)
    ]
    sensitivity = rules.sensitivity_deviation
    return TraitRows(
        kind=kind,
        cores=_draw_cores(world, kind, _generator(stream, _Trait.CORES)),
        speed=np.stack(speeds, axis=1),
        demand_per_core=means["bandwidth_per_core"] * factors(_Trait.DEMAND, rules.demand_deviation),
        bandwidth_sensitivity=means["bandwidth_sensitivity"]
        * factors(_Trait.BANDWIDTH_SENSITIVITY, sensitivity),
        cache_sensitivity=means["cache_sensitivity"] * factors(_Trait.CACHE_SENSITIVITY, sensitivity),
        pollution_per_core=means["pollution_per_core"],
        data_rate=means["data_rate"] * factors(_Trait.DATA_RATE, rules.data_deviation),
    )


def _generator(stream: tuple[int, ...], trait: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([*stream, int(trait)]))


def _draw_cores(world: World, kind: Ints, generator: np.random.Generator) -> Ints:
    """Return the cores of a task of each program, of its kind's choices with equal odds."""
    kinds = world.work_kinds
    table = np.zeros((len(kinds), max(len(found.cores) for found in kinds)), np.int64)
    for at, found in enumerate(kinds):
        table[at, : len(found.cores)] = found.cores
    choices = np.array([len(found.cores) for found in kinds])[kind]
    cores: Ints = table[kind, (generator.random(len(kind)) * choices).astype(np.int64)]
    return cores


def join_rows(*parts: TraitRows) -> TraitRows:
    """Return the rows of all parts, in their order."""
    return TraitRows(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in TraitRows.__struct_fields__)
    )


def take_rows(rows: TraitRows, chosen: Ints) -> TraitRows:
    """Return these rows, in this order."""
    return TraitRows(*(getattr(rows, name)[chosen] for name in TraitRows.__struct_fields__))
