"""Placement by estimated finish: the node classes of all clusters in the order in which a task would end.

A *place* is one node class of one cluster. The fast path claims the best places first. While a place that is
much better than those with room may come free, tasks wait for it: for a bounded time no place is acceptable
that costs more than ``policy.finish_time.waiting`` allows. Wardens get the same limit with the demand, so
that they do not grant what the broker would not claim. The limit ends at the broker, which then claims what
there is and tells the wardens.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

import msgspec

from hanse.core.broker.cluster_view import SHAPES_MAX, ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.finish_estimates import FinishEstimates
from hanse.core.broker.job_table import JobRecord
from hanse.core.broker.placement_reasons import ASKED_FOR, NO_ROOM_SEEN, NONE_OPEN, STANDING_LEAST
from hanse.core.broker.queue import QueueLine
from hanse.core.messaging.link import NEVER
from hanse.model.decision_record import DecisionKind
from hanse.model.ids import MILLISECOND, JobId
from hanse.model.messages import NodePreference, Shape
from hanse.model.resources import Resources
from hanse.policy.finish_time.waiting import WAIT_RATIO, WAIT_SHARE
from hanse.policy.hashing import hash_numbers
from hanse.policy.interface import ClusterFacts
from hanse.policy.node_columns import NodeColumns, is_empty

LIMITS_SPARE: Final = 1_024
"""Obsolete limits, beyond two for each job, at which they are thrown away."""
PLACES_SHOWN: Final = 3
"""Places named in a decision: the best and its rivals."""
WAITS_FOR_BETTER: Final = "it waits a little for a better place"

ClaimRoom = Callable[[ClusterView, JobRecord, int, list[int], Resources, NodePreference | None], None]
"""Function that claims nodes of a cluster for waiting tasks of a group, as ``BrokerPlacement`` does."""


class Place(msgspec.Struct, gc=False):
    """One node class of one cluster."""

    cost: int
    """Estimated milliseconds from the start of a task there to its end."""
    view: ClusterView
    node_class: int


class KnownPlaces(NamedTuple):
    """Places of a shape, as long as neither the estimates nor the nodes change."""

    version: int
    nodes: list[NodeColumns]
    """Nodes of the clusters that may be used: other objects are other nodes."""
    places: list[Place]
    ideal: int
    """Cost of the best place; 0: there is none."""


class FinishPlacement:
    """Placement of one broker's single tasks by estimated finish."""

    def __init__(
        self, context: BrokerContext, estimates: FinishEstimates, claim: ClaimRoom,
        touched_lines: dict[int, None],
    ) -> None:  # fmt: skip
        self.context = context
        self.estimates = estimates
        self._claim = claim
        self._touched_lines = touched_lines
        self._known: dict[Shape, KnownPlaces] = {}
        self._limits: list[tuple[int, JobId, int]] = []
        """Ends of limits: time, job, group. Some are obsolete."""

    @property
    def due(self) -> int:
        """Time at which the next limit ends."""
        return self._limits[0][0] if self._limits else NEVER

    def is_placed_by_finish(self, shape: Shape) -> bool:
        """True if the tasks of a shape are placed here: single ones of a fixed size, without affinities."""
        return bool(shape.kind) and not (shape.gang or shape.ask_max or shape.affinity)

    def note_ready(self, record: JobRecord, group: int) -> None:
        """Note the time from which a group waits; later returns to the queue do not change it."""
        record.ready.setdefault(group, self.context.now)

    # --- the fast path -------------------------------------------------------------------------------------

    def place_group(self, line: QueueLine, record: JobRecord, group: int, views: list[ClusterView]) -> bool:
        """Claim room for as many waiting tasks of a group as possible; return True if that was all of them.
        ``views``: clusters that take claims and may have room."""
        found: dict[str, int] = {}
        waiting, shape = record.waiting[group], line.shape
        limit = self._limit_of(record, group, shape)
        open_here = {view.index for view in views}
        places = self._places(record, group, shape).places
        reason = NO_ROOM_SEEN if views else ASKED_FOR if places else NONE_OPEN
        for place in self._rank(record, places):
            if waiting and limit and place.cost > limit:
                reason = WAITS_FOR_BETTER
                self._watch(record, group, shape)
            if not waiting or reason == WAITS_FOR_BETTER:
                break
            if place.view.index in open_here:
                got = self._place_in(place, line, record, group, limit)
                found[place.view.name] = found.get(place.view.name, 0) + got
        self._record(line, record, group, found, reason)
        if waiting:
            for view in views:
                view.state.exhausted[line.number] = True
        return not waiting

    def _record(
        self, line: QueueLine, record: JobRecord, group: int, found: dict[str, int], reason: str
    ) -> None:
        """Record what was claimed, and why the rest waits."""
        considered, placed, left = list(found.items()), sum(found.values()), len(record.waiting[group])
        if placed:
            self._touched_lines[line.number] = None
            if self.context.config.decisions:
                text = f"claimed where it ends soonest: {self._describe_places(record, group, line.shape)}"
                self.context.record_decision(record, group, DecisionKind.PLACED, placed, text, considered)
        if left:
            self.context.record_decision(record, group, DecisionKind.WAITING, left, reason, considered)

    def _place_in(self, place: Place, line: QueueLine, record: JobRecord, group: int, limit: int) -> int:
        """Claim room of one place: of our own share first; return the number of tasks placed."""
        view = place.view
        compiled = view.compile_shape(line.shape)
        if compiled.ask is None or view.is_futile(line.shape):
            return 0
        usable, members = view.usable, view.node_classes.masks[place.node_class]
        start = hash_numbers(self.context.seed, self.context.steps, view.index) % max(1, usable.nodes)
        attributes = view.attribute_index.attribute_counts
        count, nodes = len(record.waiting[group]), list[int]()
        for mask in (compiled.own_mask & members, compiled.mask & members):
            if len(nodes) < count and not is_empty(mask):
                nodes += self.context.placer.place(
                    usable, compiled.ask, mask, start, count - len(nodes), 0, attributes
                )
        if nodes:
            costs = self.estimates.costs(view, record, group, line.shape.kind)
            preference = NodePreference(costs, limit)
            self._claim(view, record, group, nodes, line.shape.ask, preference)
        return len(nodes)

    def _places(self, record: JobRecord, group: int, shape: Shape) -> KnownPlaces:
        """Return the places where a task could ever run, with room or not."""
        views = [v for v in self.context.views if v.is_open and v.usable.nodes and not v.state.given_up]
        nodes = [view.usable for view in views]
        known = self._known.get(shape)
        if known is None or known.version != self.estimates.version or known.nodes != nodes:
            places = [
                Place(cost, view, number)
                for view in views
                for number, cost in enumerate(self.estimates.costs(view, record, group, shape.kind))
                if not is_empty(view.compile_shape(shape).mask & view.node_classes.masks[number])
            ]
            if len(self._known) >= SHAPES_MAX:
                self._known.clear()
            ideal = min([place.cost for place in places], default=0)
            known = self._known[shape] = KnownPlaces(self.estimates.version, nodes, places, ideal)
        return known

    def _rank(self, record: JobRecord, places: list[Place]) -> list[Place]:
        """Return the places, the best first."""
        context = self.context
        if len(places) < 2:
            return places
        facts = [
            ClusterFacts(
                place.view.name, place.view.state.standing, -1, place.cost,
                place.view.node_classes.names[place.node_class],
            )
            for place in places
        ]  # fmt: skip
        start = hash_numbers(context.seed, context.steps, record.id) % len(places)
        order = context.rank.rank(facts, start)
        order.sort(key=lambda at: places[at].view.state.standing < STANDING_LEAST)
        return [places[at] for at in order]

    # --- wait or go ----------------------------------------------------------------------------------------

    def _limit_of(self, record: JobRecord, group: int, shape: Shape) -> int:
        """Return the cost above which no place is acceptable now; 0: every place is."""
        ideal = self._places(record, group, shape).ideal
        waited = self.context.now - record.ready.get(group, self.context.now)
        return int(ideal * WAIT_RATIO) if waited < ideal * WAIT_SHARE * MILLISECOND else 0

    def _watch(self, record: JobRecord, group: int, shape: Shape) -> None:
        """Remember when the limit of a group ends."""
        ideal = self._places(record, group, shape).ideal
        until = record.ready[group] + int(ideal * WAIT_SHARE) * MILLISECOND + 1
        if record.limited_until.get(group) != until:
            record.limited_until[group] = until
            heappush(self._limits, (until, record.id, group))
            if len(self._limits) > 2 * len(self.context.jobs) + LIMITS_SPARE:
                self._find_limits()

    def take_ended_limits(self) -> list[tuple[JobRecord, int]]:
        """Return the waiting groups whose limit has ended."""
        found = []
        while self._limits and self._limits[0][0] <= self.context.now:
            until, job, group = heappop(self._limits)
            record = self.context.jobs.get(job)
            if record is not None and record.limited_until.get(group) == until and record.waiting[group]:
                found.append((record, group))
        return found

    def line_preference(self, view: ClusterView, number: int, shape: Shape) -> NodePreference | None:
        """Return what a warden should know with a line's demand: costs and limit of its best group."""
        head = self.context.queue.head(number, self.context.jobs)
        if head is None or not self.is_placed_by_finish(shape):
            return None
        _, record, group = head
        costs = self.estimates.costs(view, record, group, shape.kind)
        return NodePreference(costs, self._limit_of(record, group, shape))

    def restore(self) -> None:
        """Find the limits of the restored jobs again."""
        self._known.clear()
        self._find_limits()

    def _find_limits(self) -> None:
        """Collect the limits of the waiting groups, without obsolete ones."""
        self._limits = sorted(
            (until, record.id, group)
            for record in self.context.jobs.values()
            for group, until in record.limited_until.items()
            if record.waiting[group]
        )

    def _describe_places(self, record: JobRecord, group: int, shape: Shape) -> str:
        """Return the best places and their estimates, for people."""
        texts = []
        for place in self._rank(record, self._places(record, group, shape).places)[:PLACES_SHOWN]:
            name = place.view.node_classes.names[place.node_class]
            texts.append(f"{place.view.name}{f' on {name}' if name else ''} {place.cost / 1000:.3g} s")
        return ", ".join(texts)
