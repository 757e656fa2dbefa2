"""Node rankers: choice of nodes at a warden, for substitutes, gangs and demand that is served from free room.

All keep to the mask and the room; ties go to the first suitable node in circular order from ``start``.
"""

from collections.abc import Sequence

from hanse.model.resources import Vector
from hanse.policy.interface import Mask, NodeRanker
from hanse.policy.kernels import BEST_FIT, FIRST, SPREAD, pick, settle
from hanse.policy.node_columns import NodeColumns, clear_bit, has_bit


class FirstNodeRanker:
    """Ranker that fills the first suitable node from a random start: the fastest. A substitute may take the
    room that a later task of the claim proposes."""

    name = "first"

    def choose(
        self, room: NodeColumns, ask: Vector, mask: Mask, start: int, count: int, each_max: int
    ) -> list[int]:
        """See ``NodeRanker.choose``."""
        return pick(room, ask, mask, start, count, FIRST, each_max, None)

    def settle(
        self, room: NodeColumns, ask: Vector, mask: Mask, proposed: Sequence[int], start: int, each_max: int
    ) -> list[int]:
        """See ``NodeRanker.settle``."""
        return settle(room, ask, mask, proposed, start, each_max)


class BestFitNodeRanker:
    """Ranker by the least room left afterwards: keeps whole nodes free for large tasks and gangs."""

    name = "best-fit"

    def choose(
        self, room: NodeColumns, ask: Vector, mask: Mask, start: int, count: int, each_max: int
    ) -> list[int]:
        """See ``NodeRanker.choose``."""
        return pick(room, ask, mask, start, count, BEST_FIT, each_max, None)

    def settle(
        self, room: NodeColumns, ask: Vector, mask: Mask, proposed: Sequence[int], start: int, each_max: int
    ) -> list[int]:
        """See ``NodeRanker.settle``."""
        return settle_by_rank(self, room, ask, mask, proposed, start, each_max)


class SpreadNodeRanker:
    """Ranker by the most room left afterwards: evens load and heat; a lost node costs less."""

    name = "spread"

    def choose(
        self, room: NodeColumns, ask: Vector, mask: Mask, start: int, count: int, each_max: int
    ) -> list[int]:
        """See ``NodeRanker.choose``."""
        return pick(room, ask, mask, start, count, SPREAD, each_max, None)

    def settle(
        self, room: NodeColumns, ask: Vector, mask: Mask, proposed: Sequence[int], start: int, each_max: int
    ) -> list[int]:
        """See ``NodeRanker.settle``."""
        return settle_by_rank(self, room, ask, mask, proposed, start, each_max)


def settle_by_rank(
    ranker: NodeRanker, room: NodeColumns, ask: Vector, mask: Mask, proposed: Sequence[int], start: int,
    each_max: int,
) -> list[int]:  # fmt: skip
    """Return the node of each task: first all proposals that suit, then substitutes chosen by the ranker."""
    quick = settle(room, ask, mask, proposed, start, each_max)
    if quick == list(proposed):  # the usual case, at the speed of the kernel
        return quick
    for node in quick:
        if node >= 0:
            room.credit(node, ask)
    mask = mask.copy()
    given: dict[int, int] = {}

    def note(node: int) -> None:
        given[node] = given.get(node, 0) + 1
        if given[node] == each_max:
            clear_bit(mask, node)

    settled = [-1] * len(proposed)
    for at, node in enumerate(proposed):
        if 0 <= node < room.nodes and has_bit(mask, node) and room.fits(node, ask):
            room.debit(node, ask)
            settled[at] = node
            note(node)
    rest = [at for at, node in enumerate(settled) if node < 0]
    if not each_max:
        chosen = ranker.choose(room, ask, mask, start, len(rest), 0)
        for at, node in zip(rest, chosen, strict=False):
            settled[at] = node
        return settled
    for at in rest:  # one by one: the tasks that a node was given already count
        chosen = ranker.choose(room, ask, mask, start, 1, 1)
        if not chosen:
            break
        settled[at] = chosen[0]
        note(chosen[0])
    return settled
