"""Placement of a broker's waiting tasks: claims on its views, and demand at the wardens.

The fast path claims nodes that the view shows free. What finds none is registered as demand with every
warden; ``grant_binding`` uses the grants that come back. A new task never overtakes the line that it belongs
to.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.demand_publisher import DemandPublisher
from hanse.core.broker.elastic.sizing import ElasticSizing
from hanse.core.broker.finish_estimates import EstimatesState, FinishEstimates
from hanse.core.broker.finish_placement import FinishPlacement
from hanse.core.broker.job_table import (
    CLAIMED,
    PLACED,
    JobRecord,
    mark_waiting,
    shape_of,
    take_last,
    template_of,
)
from hanse.core.broker.placement_reasons import (
    ASKED_FOR,
    DECISION_NO_ROOM,
    DECISIONS_WITHOUT_SEARCH,
    LITTLE_TO_BORROW,
    NO_ROOM_SEEN,
    NONE_OPEN,
    WARDENS_JUDGE,
)
from hanse.core.broker.queue import QueueLine
from hanse.core.broker.queue_keys import QueueKeys
from hanse.core.broker.view_ranking import rank_views, takes_claims
from hanse.model.decision_record import DecisionKind
from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.events import AdviceReceived
from hanse.model.ids import JobId
from hanse.model.messages import NodePreference, QueueKey, Shape, TaskBatch, TaskTemplate
from hanse.model.resources import Resources, Vector
from hanse.policy.gang_topology import choose_gang, has_topology
from hanse.policy.hashing import hash_numbers
from hanse.policy.node_columns import MaskWords

BATCH_TASKS_MAX: Final = 100
"""Tasks in one batch."""
BORROW_FACTOR: Final = 4
"""Multiple of the needed room that a broker must see, after a recent refusal, to claim from others' shares.
Several brokers may compete for scarce room, so it registers demand instead. Otherwise the needed room is
enough."""
Head = tuple[QueueKey, JobRecord, int]
"""Best waiting group of a line: its key, its job, its position in the job."""


class BrokerPlacement:
    """Placement of one broker's tasks."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.touched_lines: dict[int, None] = {}
        self.estimates = FinishEstimates(context)
        self.finish = FinishPlacement(context, self.estimates, self._claim, self.touched_lines)
        self.sizing = ElasticSizing(context, self.estimates)
        self.demand_publisher = DemandPublisher(context, self.finish)
        self._templates: dict[tuple[JobId, int], TaskTemplate] = {}
        self.batches: dict[int, list[TaskBatch]] = {}
        """Claims of this step, by cluster."""
        self.releases: dict[int, list[int]] = {}
        """Grants of each cluster that this step gives back."""
        self.keys = QueueKeys(context, self.touched_lines, self.estimates)

    # --- the queue -----------------------------------------------------------------------------------------

    def enqueue(self, record: JobRecord, group: int, tasks: list[int], behind: bool = False) -> None:
        """Queue tasks of a group (again). The next one is the last of ``waiting``; ``behind``: after those
        that wait."""
        context = self.context
        mark_waiting(record, tasks)
        if self.keys.follows_usage:
            self.keys.on_usage(record)
        waiting = record.waiting[group]
        if record.spec.gang:
            waiting += tasks
            self._enqueue_gang(record, group)
            return
        if record.lines[group] < 0:
            record.lines[group] = self.sizing.join(record, group)
        if self.estimates.is_on:
            self.finish.note_ready(record, group)
        fresh = not waiting
        at = 0 if behind else len(waiting)
        waiting[at:at] = tasks
        line = context.queue.lines[record.lines[group]]
        context.queue.add(line, len(tasks))
        if fresh:
            context.queue.push(context.jobs, record, group, self.keys.key(record))
        self.touched_lines[line.number] = None

    def _enqueue_gang(self, record: JobRecord, group: int) -> None:
        """Add a gang to its line when all that is left of it waits."""
        lines = self.context.queue
        waiting = record.waiting[group]
        self.leave(record, group)
        if len(waiting) == record.unfinished[group]:
            record.lines[group] = number = lines.join(
                shape_of(record.spec, group, len(waiting), self.estimates.shape_kind(record.spec, group))
            )
            lines.add(lines.lines[number], 1)
            lines.push(self.context.jobs, record, group, self.keys.key(record))
            self.touched_lines[number] = None

    def leave(self, record: JobRecord, group: int) -> None:
        """Take a group off its line: it is done, or its gang has broken. Its count must be corrected
        before."""
        self._templates.pop((record.id, group), None)
        if self.estimates.is_on and not record.unfinished[group]:
            self.estimates.on_group_ended(record, group)
        if record.lines[group] >= 0:
            number, record.lines[group] = record.lines[group], -1
            self.context.queue.leave(number)
            self.sizing.leave(record, group)
            if number not in self.context.queue.lines:
                self.touched_lines[number] = None
                self.demand_publisher.hold_at.pop(number, None)
                for view in self.context.views:  # the number may soon mean another shape
                    view.state.exhausted.pop(number, None)

    def dequeue(self, record: JobRecord, group: int) -> list[int]:
        """Remove and return all waiting tasks of a group."""
        waiting, record.waiting[group] = record.waiting[group], []
        number = record.lines[group]
        if number >= 0 and waiting:
            lines = self.context.queue
            lines.add(lines.lines[number], -1 if record.spec.gang else -len(waiting))
            self.touched_lines[number] = None
        return waiting

    def resize(self, groups: Iterable[tuple[JobId, int]]) -> None:
        """Move waiting groups to another line where new knowledge changes their size."""
        context = self.context
        for job, group in groups:
            record = context.jobs[job]
            if not record.waiting[group]:
                continue
            shape, _ = self.sizing.shape(record, group)
            if shape != context.queue.lines[record.lines[group]].shape:
                context.mark("broker.resized")
                tasks = self.dequeue(record, group)
                self.leave(record, group)
                self.enqueue(record, group, tasks)
                self.place_line(record.lines[group])

    def on_duration_stats_update(self, peer: str, update: DurationStatsUpdate) -> None:
        """Apply durations learned by a peer: waiting groups may get another size."""
        self.resize(self.sizing.on_duration_stats_update(peer, update))

    def on_advice_received(self, event: AdviceReceived) -> None:
        """Apply advice of the policy process: waiting groups may get another size."""
        self.resize(self.sizing.on_advice_received(event))

    # --- the fast path -------------------------------------------------------------------------------------

    def place_line(self, number: int) -> None:
        """Claim room for a line's tasks, best key first, until no task or no visible room is left."""
        self.keys.update_outdated()
        head = self.context.queue.head(number, self.context.jobs)
        if head is not None:
            self._place_from(number, head, {})

    def _place_from(self, number: int, head: Head, open_to: dict[str, list[ClusterView]]) -> None:
        """Claim room for a line whose best task is known. ``open_to``: shard -> clusters that would accept a
        claim, as far as known. Tasks with affinities wait for grants: only a warden can judge other jobs'
        places."""
        context = self.context
        line = context.queue.lines[number]
        shape = line.shape
        by_finish = self.finish.is_placed_by_finish(shape)
        place_group = self.finish.place_group if by_finish else self._place_group
        next_head: Head | None = head
        while next_head is not None:
            _, record, group = next_head
            views = open_to.get(record.shard)
            if views is None:
                views = [view for view in context.views if self.can_claim(view, record.shard)]
                open_to[record.shard] = views
            if shape.affinity:
                views = []
            else:
                views = [view for view in views if number not in view.state.exhausted and view.allows(shape)]
            last_decision = record.last_decision[group]
            # Futility is cached, not state: it may save a search, but must not change a decision.
            if (
                last_decision == DECISION_NO_ROOM
                or (last_decision in DECISIONS_WITHOUT_SEARCH and not views)
                or not context.config.decisions
            ):
                for view in views:
                    if not view.is_futile(shape):
                        break
                else:
                    for view in views:
                        view.state.exhausted[number] = True
                    return
            if not place_group(line, record, group, views):
                return
            next_head = context.queue.head(number, context.jobs)

    def place_all(self) -> None:
        """Try every line again, best key first, after views have improved."""
        open_to: dict[str, list[ClusterView]] = {}
        for key, number, record, group in self.context.queue.heads(self.context.jobs):
            self._place_from(number, (key, record, group), open_to)

    def _place_group(self, line: QueueLine, record: JobRecord, group: int, views: list[ClusterView]) -> bool:
        """Claim room for as many waiting tasks of a group as possible; return True if that was all of them.

        Our own shares of all clusters come first. Then room is borrowed from every cluster in proportion to
        what it has left, so that several brokers can borrow at once; after a recent refusal, only where there
        is plenty. A job with ``data`` stays close to it.
        """
        found: dict[str, int] = {}
        unused: dict[str, int] = {}
        ranked = self.sizing.rank_by_advice(record, group, rank_views(self.context, record, views))
        if len(ranked) > 1 and not (line.shape.gang or line.shape.ask_max or record.spec.data):
            for view in ranked:
                if not record.waiting[group]:
                    break
                found[view.name] = self._place_own(view, line, record, group)
            wary = any(self.context.now < view.state.wary_until for view in self.context.views)
            enough = (BORROW_FACTOR if wary else 1) * len(record.waiting[group])
            if enough:
                unused = {view.name: min(enough, view.count_free_slots(line.shape)) for view in ranked}
            if sum(unused.values()) < enough:
                for view in ranked:
                    view.state.exhausted[line.number] = True
                ranked = []
        most, room = len(record.waiting[group]), sum(unused.values())
        for view in ranked:
            if not record.waiting[group]:
                break
            part = -(-most * unused[view.name] // room) if room else most
            got = self._place_in(view, line, record, group, part) if part else 0
            if not got:
                view.state.exhausted[line.number] = True
            found[view.name] = found.get(view.name, 0) + got
        placed = sum(found.values())
        left = len(record.waiting[group])
        if placed:
            self.touched_lines[line.number] = None
            considered = list(found.items())
            self.context.record_decision(
                record, group, DecisionKind.PLACED, placed, "claimed room in view", considered
            )
        if left:
            reason = LITTLE_TO_BORROW if any(unused.values()) else NO_ROOM_SEEN
            reason = reason if views else self._find_unseen_reason(line.shape, record.shard)
            considered = [(name, got + unused.get(name, 0)) for name, got in found.items()]
            self.context.record_decision(record, group, DecisionKind.WAITING, left, reason, considered)
        return not left

    def end_limits(self) -> None:
        """Try the groups again that have waited long enough for a better place, and tell the wardens."""
        for record, group in self.finish.take_ended_limits():
            number = record.lines[group]
            self.touched_lines[number] = None
            self.demand_publisher.best.pop(number, None)  # so that the demand counts as changed
            for view in self.context.views:
                view.state.exhausted.pop(number, None)
            self.place_line(number)

    def _find_unseen_reason(self, shape: Shape, shard: str) -> str:
        """Return why no cluster was searched for room."""
        if shape.affinity:
            return WARDENS_JUDGE
        open_views = [
            view for view in self.context.views if self.can_claim(view, shard) and view.allows(shape)
        ]
        return ASKED_FOR if open_views else NONE_OPEN

    def can_claim(self, view: ClusterView, shard: str) -> bool:
        """True if a claim for this shard would be accepted there, as far as is known."""
        return takes_claims(view, shard, self.context.now) and not self.context.links.is_crowded(view.name)

    def _place_own(self, view: ClusterView, line: QueueLine, record: JobRecord, group: int) -> int:
        """Claim free room of our own share of a cluster; return the number of tasks placed."""
        vector = line.shape.ask.vector(view.dimensions)
        if vector is None or view.is_futile(line.shape):
            return 0
        own, usable = view.compile_shape(line.shape).own_mask, view.usable
        start = hash_numbers(self.context.seed, self.context.steps, view.index) % max(1, usable.nodes)
        count = len(record.waiting[group])
        nodes = self.context.placer.place(
            usable, vector, own, start, count, 0, view.attribute_index.attribute_counts
        )
        if nodes:
            self._claim(view, record, group, nodes, line.shape.ask)
        return len(nodes)

    def _place_in(self, view: ClusterView, line: QueueLine, record: JobRecord, group: int, most: int) -> int:
        """Claim room in one cluster for up to ``most`` tasks; return the number of tasks placed."""
        shape = line.shape
        if view.is_futile(shape):
            return 0
        compiled = view.compile_shape(shape)
        count = min(most, len(record.waiting[group]))
        start = hash_numbers(self.context.seed, self.context.steps, view.index) % max(1, view.usable.nodes)
        sizes = self.context.sizer.sizes_to_try(shape.ask, shape.ask_max) if shape.ask_max else (shape.ask,)
        place, counts = self.context.placer.place, view.attribute_index.attribute_counts
        for size in sizes:
            vector = size.vector(view.dimensions)
            if vector is None:
                continue
            nodes: list[int] = []
            if has_topology(shape):
                choose = partial(self._place_part, view, vector, start)
                index = view.attribute_index
                nodes = choose_gang(shape, view.usable, vector, compiled.mask, count, index, choose)
            elif not shape.gang:
                nodes = place(view.usable, vector, compiled.own_mask, start, count, 0, counts)
            if len(nodes) < count and not has_topology(shape):
                nodes += place(view.usable, vector, compiled.mask, start, count - len(nodes), 0, counts)
            if len(nodes) == count or (size == shape.ask and nodes and not shape.gang):
                self._claim(view, record, group, nodes, size)
                return len(nodes)
            for node in nodes:
                view.usable.credit(node, vector)
        compiled.failed_at = view.gains.checkpoint
        return 0

    def _place_part(self, view: ClusterView, size: Vector, at: int, mask: MaskWords, count: int) -> list[int]:
        """Find room for a part of a gang among some nodes."""
        counts = view.attribute_index.attribute_counts
        return self.context.placer.place(view.usable, size, mask, at, count, 0, counts)

    def _claim(
        self, view: ClusterView, record: JobRecord, group: int, nodes: list[int], size: Resources,
        preference: NodePreference | None = None,
    ) -> None:  # fmt: skip
        tasks = take_last(record.waiting[group], len(nodes))
        if record.spec.gang:
            tasks.sort()  # ranks follow the indices: neighbours share a node
        lines = self.context.queue
        lines.add(lines.lines[record.lines[group]], -1 if record.spec.gang else -len(tasks))
        most = len(tasks) if record.spec.gang else BATCH_TASKS_MAX
        for at in range(0, len(tasks), most):
            part = slice(at, at + most)
            self.add_batch(view, record, group, tasks[part], tuple(nodes[part]), size, 0, preference)

    def add_batch(
        self, view: ClusterView, record: JobRecord, group: int, tasks: list[int], nodes: tuple[int, ...],
        size: Resources, lease: int, preference: NodePreference | None = None,
    ) -> TaskBatch:  # fmt: skip
        """Add tasks to the claims of this step. ``lease``: the grant that they use; 0: none."""
        state = PLACED if lease else CLAIMED
        states, attempt, place, position = record.state, record.attempt, record.place, view.index
        for index in tasks:
            states[index] = state
            attempt[index] += 1
            place[index] = position
        attempts = tuple([attempt[index] for index in tasks])
        if record.spec.groups[group].ask_max is not None:
            self.sizing.note_placed(record, group, tasks, size)
        if self.keys.follows_usage:
            self.keys.on_usage(record)
        template = self._template_of(record, group)
        batch = TaskBatch(record.id, group, template, tuple(tasks), attempts, nodes, size, lease, preference)
        self.context.history.place_tasks(view.name, batch)
        self.batches.setdefault(view.index, []).append(batch)
        if not lease:
            view.reserve(batch)
        return batch

    def _template_of(self, record: JobRecord, group: int) -> TaskTemplate:
        key = (record.id, group)
        template = self._templates.get(key)
        if template is None:
            shape = self.context.queue.lines[record.lines[group]].shape
            template = self._templates[key] = template_of(record.spec, group, shape, record.shard)
        return template

    # --- messages to the wardens ---------------------------------------------------------------------------

    def flush(self, force: bool = False) -> None:
        """Send claims, releases, and demand where a message is worth it."""
        changed = force or self.demand_publisher.has_improved(self.touched_lines)
        self.touched_lines.clear()
        if changed or self.batches or self.releases:
            self.demand_publisher.send(self.batches, self.releases, changed, force)
            self.batches.clear()
            self.releases.clear()

    def restore(self, estimates: EstimatesState | None) -> None:
        """Restore the estimates, and forget what was derived from the state before."""
        self._templates.clear()
        self.keys.restore()
        self.estimates.restore(estimates)
        self.finish.restore()
