"""Resources that a task asks for and a node has: exact integers, never floats.

Four kinds: CPU in thousandths of a core, memory in bytes, whole GPUs, and a few named custom resources
(licences, FPGAs) in whole units. A cluster lays its nodes' resources out as columns in the order of
``Dimensions``; ``Resources.vector`` converts a record to a vector in that order.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

CPU_MILLI_MAX: Final = 1_000_000_000
"""One million cores: more is a mistake."""
MEMORY_BYTES_MAX: Final = 1 << 50
"""One pebibyte per task or node. With at most 2**12 tasks on a node every sum stays below 2**63."""
GPUS_MAX: Final = 1 << 20
CUSTOM_MAX: Final = 1 << 40
CUSTOM_KINDS_MAX: Final = 16

BASE_DIMENSIONS: Final = ("cpu", "memory", "gpu")
Dimensions = tuple[str, ...]
"""Resource names of a cluster's columns: ``BASE_DIMENSIONS``, then its custom ones, sorted."""
Vector = tuple[int, ...]


class Resources(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Amount of each resource. Units: milli-CPU, bytes, whole GPUs, whole custom units."""

    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    custom: tuple[tuple[str, int], ...] = ()
    """Custom resources, sorted by name, without zero amounts."""

    def vector(self, dimensions: Dimensions) -> Vector | None:
        """Return these amounts in a cluster's column order; None if it lacks a custom resource of these."""
        if not self.custom:
            return (self.cpu, self.memory, self.gpu) + (0,) * (len(dimensions) - 3)
        extra = dict(self.custom)
        if any(name not in dimensions for name in extra):
            return None
        return (self.cpu, self.memory, self.gpu, *(extra.get(name, 0) for name in dimensions[3:]))

    def fits(self, room: "Resources") -> bool:
        """True if ``room`` has at least this much of every resource."""
        if self.cpu > room.cpu or self.memory > room.memory or self.gpu > room.gpu:
            return False
        if not self.custom:
            return True
        has = dict(room.custom)
        return all(has.get(name, 0) >= amount for name, amount in self.custom)

    def plus(self, other: "Resources") -> "Resources":
        """Return the sum."""
        if not self.custom and not other.custom:
            return Resources(self.cpu + other.cpu, self.memory + other.memory, self.gpu + other.gpu)
        custom = dict(self.custom)
        for name, amount in other.custom:
            custom[name] = custom.get(name, 0) + amount
        return Resources(
            self.cpu + other.cpu, self.memory + other.memory, self.gpu + other.gpu, _sort_custom(custom)
        )

    def minus(self, other: "Resources") -> "Resources":
        """Return the difference; taking more than there is would be a bug."""
        assert other.fits(self), f"{other} does not fit {self}"
        if not self.custom and not other.custom:
            return Resources(self.cpu - other.cpu, self.memory - other.memory, self.gpu - other.gpu)
        custom = dict(self.custom)
        for name, amount in other.custom:
            custom[name] -= amount
        return Resources(
            self.cpu - other.cpu, self.memory - other.memory, self.gpu - other.gpu, _sort_custom(custom)
        )

    def times(self, count: int) -> "Resources":
        """Return ``count`` of these."""
        return Resources(
            self.cpu * count,
            self.memory * count,
            self.gpu * count,
            tuple((name, amount * count) for name, amount in self.custom) if count else (),
        )


def dominant_share(used: Resources, total: Resources) -> tuple[int, str]:
    """Return the largest share of any resource, in millionths of the whole, and that resource's name.

    Ties go to the first of cpu, memory, gpu, then custom names in order. A resource that the whole lacks
    counts as fully used as soon as any of it is used.
    """
    whole = {"cpu": total.cpu, "memory": total.memory, "gpu": total.gpu, **dict(total.custom)}
    best, name = -1, "cpu"
    for kind, amount in (("cpu", used.cpu), ("memory", used.memory), ("gpu", used.gpu), *used.custom):
        size = whole.get(kind, 0)
        share = amount * 1_000_000 // size if size else (1_000_000 if amount else 0)
        if share > best:
            best, name = share, kind
    return best, name


def dimensions_of(capacities: "tuple[Resources, ...]") -> Dimensions:
    """Return the column order for nodes of these capacities."""
    names = {name: None for capacity in capacities for name, _ in capacity.custom}
    return BASE_DIMENSIONS + tuple(sorted(names))


def _sort_custom(custom: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in custom.items() if amount))
