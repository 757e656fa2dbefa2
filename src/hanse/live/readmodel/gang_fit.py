"""Largest gang that nodes could hold together, by the rules of ``policy.gang_topology``, for explanations."""

from collections.abc import Iterable

from hanse.model.job import Together
from hanse.model.messages import Shape
from hanse.policy.gang_topology import RACK

NodeSlots = tuple[int, dict[str, object], int]
"""Number of a node, its attributes, and the number of tasks that fit on it."""


def find_largest_gang(shape: Shape, nodes: Iterable[NodeSlots]) -> tuple[int, str]:
    """Return the number of tasks of a gang that fit within one part (node, rack or cluster), and the part's
    name; empty: the cluster. Ties go to the first name, and of nodes to the lowest number."""
    sizes: dict[tuple[int, str], dict[str, int]] = {}
    for number, attributes, slots in nodes:
        if shape.together is Together.RACK and RACK not in attributes:
            continue
        if shape.spread and shape.spread not in attributes:
            continue
        part = (0, "")
        if shape.together is Together.RACK:
            part = (0, str(attributes[RACK]))
        elif shape.together is Together.NODE:
            part = (number, str(number))
        values = sizes.setdefault(part, {})
        value = str(attributes[shape.spread]) if shape.spread else ""
        values[value] = values.get(value, 0) + slots
    most = shape.spread_max if shape.spread else 0
    best, where = 0, ""
    for part in sorted(sizes):
        fits = sum([min(size, most) if most else size for size in sizes[part].values()])
        if fits > best:
            best, where = fits, part[1]
    return best, where


def part_text(shape: Shape, cluster: str, part: str) -> str:
    """Return the name of a part for people: ``rack r2 of north``."""
    if shape.together is Together.CLUSTER or not part:
        return cluster
    return f"{shape.together} {part} of {cluster}"


def topology_text(shape: Shape) -> str:
    """Return what a gang asks of its places, as words behind a number of tasks; empty: nothing."""
    text = {Together.NODE: " on one node", Together.RACK: " in one rack"}.get(shape.together, "")
    if shape.spread:
        most = f", at most {shape.spread_max} for each" if shape.spread_max else ""
        text += f" spread over '{shape.spread}'{most}"
    return text
