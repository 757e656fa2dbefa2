"""Index of labels and affinities of the attempts in one cluster: nodes where a shape may run beside them."""

from typing import TypeVar

from hanse.core.search_cache import NO_CHECKPOINT
from hanse.core.warden.ledger_records import AttemptRecord, CompiledShape
from hanse.model.job import Proximity
from hanse.model.messages import Shape
from hanse.model.resources import Vector
from hanse.policy.node_columns import MaskWords, empty_mask, mask_of

_Key = TypeVar("_Key")


class AffinitySearch:
    """Nodes that affinities leave to a shape, until a label comes or goes."""

    __slots__ = ("among", "ask", "failed_at", "mask")

    def __init__(self, ask: Vector | None, among: MaskWords, mask: MaskWords) -> None:
        self.ask = ask
        self.among = among
        """Nodes that were to be searched."""
        self.mask = mask
        self.failed_at = NO_CHECKPOINT
        """As in ``CompiledShape``."""


class AffinityIndex:
    """Labels of attempts by node, with cached searches."""

    def __init__(self, nodes: int) -> None:
        self.changed = False
        """True if labels changed since entries with affinities or labels were last served."""
        self._nodes = nodes
        self._labels: dict[str, dict[int, int]] = {}
        """Label -> node -> number of attempts there with this label."""
        self._avoided_labels: dict[tuple[str, Proximity], dict[int, int]] = {}
        """Label and proximity -> node -> number of attempts there that keep apart from it."""
        self._searches: dict[Shape, AffinitySearch] = {}
        """Cached ``allowed_nodes`` since labels last changed."""

    def allowed_nodes(self, shape: Shape, mask: MaskWords) -> MaskWords:
        """Return ``mask`` without the nodes that the shape's affinities, and those of others to it, rule out
        now."""
        for wish in shape.affinity:
            places = self._labels.get(wish.label, {})
            if wish.proximity is Proximity.CLUSTER:
                if bool(places) == wish.apart:
                    return empty_mask(self._nodes)
            elif wish.apart:
                mask = mask & ~mask_of(places, self._nodes)
            else:
                mask = mask & mask_of(places, self._nodes)
        for label in shape.labels:
            if self._avoided_labels.get((label, Proximity.CLUSTER)):
                return empty_mask(self._nodes)
            avoiders = self._avoided_labels.get((label, Proximity.NODE))
            if avoiders:
                mask = mask & ~mask_of(avoiders, self._nodes)
        return mask

    def find_search(self, shape: Shape, compiled: CompiledShape, among: MaskWords) -> AffinitySearch:
        """Return the cached ``allowed_nodes`` of ``among``, a mask of ``compile_shape``."""
        found = self._searches.get(shape)
        if found is None or found.among is not among:
            found = self._searches[shape] = AffinitySearch(
                compiled.ask, among, self.allowed_nodes(shape, among)
            )
        return found

    def forget_searches(self) -> None:
        """Drop cached searches."""
        self._searches.clear()

    def count_labels(self, run: AttemptRecord, step: int = 1) -> None:
        """Count the labels of an attempt that has come, or gone (``step`` = -1)."""
        shape = run.template.shape
        self.changed = True
        self._searches.clear()
        for label in shape.labels:
            _count(self._labels, label, run.node, step)
        for wish in shape.affinity:
            if wish.apart:
                _count(self._avoided_labels, (wish.label, wish.proximity), run.node, step)

    def clear(self) -> None:
        """Drop all labels and searches."""
        self._labels, self._avoided_labels, self._searches = {}, {}, {}

    def check(self) -> None:
        """Assert that cached searches are current."""
        for shape, found in self._searches.items():
            assert found.mask.tolist() == self.allowed_nodes(shape, found.among).tolist(), f"{shape}"


def _count(table: dict[_Key, dict[int, int]], key: _Key, node: int, step: int) -> None:
    """Add to a count per key and node; remove counts of zero."""
    places = table.setdefault(key, {})
    places[node] = places.get(node, 0) + step
    if not places[node]:
        del places[node]
    if not places:
        del table[key]
