"""Publication of a broker's claims and waiting work (demand) to the wardens.

The broker sends its demand when a line appears, empties or gets a better job at its head, with every claim if
the demand has changed, and otherwise with its heartbeat. A count that is slightly out of date does no harm,
nor does a key that improved because the same job made progress.
"""

from typing import Final

import msgspec

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.finish_placement import FinishPlacement
from hanse.core.broker.queue import Heads
from hanse.core.messaging.message_splitting import MESSAGE_BYTES_MAX
from hanse.core.warden.demand_table import LINES_MAX
from hanse.model.ids import JobId
from hanse.model.messages import Claim, Demand, DemandLine, QueueKey, TaskBatch

CLAIM_TASKS_MAX: Final = 100
"""Placements in one claim."""
WaitingLines = list[DemandLine]
"""Waiting lines, best first, before any warden is asked to hold nodes."""


class PublishedDemand(msgspec.Struct, gc=False, rename={"is_stale": "stale"}):
    """Demand as it was last sent to one warden."""

    lines: tuple[DemandLine, ...] = ()
    is_stale: bool = False
    """True if a grant was given back although a task waits: the warden's count is too low. The next heartbeat
    repeats the demand; repeated at once, the grant would come back at once."""
    quiet_until: int = 0
    """Time until which only the heartbeat sends demand, after a refusal of a task that has room there."""


class DemandPublisher:
    """Demand of one broker, as sent to each warden."""

    def __init__(self, context: BrokerContext, finish: FinishPlacement) -> None:
        self.context = context
        self._finish = finish
        self.published: list[PublishedDemand] = [PublishedDemand() for _ in context.views]
        self.best: dict[int, tuple[QueueKey, JobId]] = {}
        """Line -> key and job of its head. Another job with a better key is sent to every warden at once; a
        worse key, or progress of the same job, is not."""
        self.hold_at: dict[int, tuple[int, int]] = {}
        """Line -> cluster that is asked to hold nodes for it, and until when."""
        self._heads: Heads = []
        self._waiting: WaitingLines = []
        """Waiting lines that belong to ``_heads``."""

    def send(
        self, batches: dict[int, list[TaskBatch]], releases: dict[int, list[int]], changed: bool, force: bool
    ) -> None:
        """Send claims and releases by cluster, and the demand to the other clusters if it has ``changed``."""
        waiting = self.waiting_lines()
        for view in self.context.views:
            index = view.index
            if index in batches or index in releases:
                self._send_claims(view, waiting, batches.get(index, []), tuple(releases.get(index, ())))
            elif changed:
                self._send_demand(view, waiting, force)

    @property
    def is_outdated(self) -> bool:
        """True if demand was sent to some warden although nothing waits."""
        for published in self.published:  # noqa: SIM110  with every heartbeat: any() is slower
            if published.lines:
                return True
        return False

    def repeat_stale(self) -> None:
        """Repeat the demand, with every heartbeat, where the warden's copy is out of date."""
        waiting = self.waiting_lines()
        if not waiting:
            self.best.clear()
        for view in self.context.views:
            self._send_demand(view, waiting, self.published[view.index].is_stale)

    def pause(self, cluster: int) -> None:
        """Stop sending demand to a cluster for one heartbeat, after it refused a task that still holds room
        there: it would grant the same room to the same task and refuse it again, as fast as the network
        allows."""
        published = self.published[cluster]
        published.is_stale, published.quiet_until = True, self.context.now + self.context.timings.beat

    def on_grant(self, cluster: int, line: int) -> None:
        """Lower the published count of a line by one, as the grant lowers the warden's count."""
        published = self.published[cluster]
        published.lines = tuple(
            [
                msgspec.structs.replace(entry, count=entry.count - 1) if entry.line == line else entry
                for entry in published.lines
            ]
        )

    def has_improved(self, touched: dict[int, None]) -> bool:
        """True if a line has appeared, emptied or got a better job at its head."""
        context = self.context
        improved = False
        for number in touched:
            line = context.queue.lines.get(number)
            head = context.queue.head(number, context.jobs) if line is not None and line.count else None
            previous = self.best.get(number)
            if head is None:
                if previous is not None:
                    del self.best[number]
                    improved = True
            else:
                key, job = self.best[number] = (head[0], head[1].id)
                improved = improved or previous is None or (key < previous[0] and job != previous[1])
        return improved

    def waiting_lines(self) -> WaitingLines:
        """Return the waiting lines. Most of them are the same for all wardens."""
        lines = self.context.queue
        heads = lines.heads(self.context.jobs)
        if heads is not self._heads:  # a line has changed
            self._heads = heads
            found = [(key, lines.lines[number]) for key, number, _, _ in heads]
            self._waiting = [DemandLine(line.number, line.shape, key, line.count) for key, line in found]
        return self._waiting

    def demand_for(self, view: ClusterView, waiting: WaitingLines) -> tuple[DemandLine, ...]:
        """Return the demand lines for one warden, best first."""
        found: WaitingLines = []
        for line in waiting:
            shape = line.shape
            if (shape.clusters_allowed or shape.clusters_forbidden) and not shape.allows_cluster(view.name):
                continue
            large = 2 * shape.ask.cpu > view.median_cpu
            preference = self._finish.line_preference(view, line.line, shape) if shape.kind else None
            hard = shape.gang or shape.priority > 0 or (large and self._is_crowded_out(shape.ask.cpu))
            if hard and self._find_holder(line) == view.index:
                found.append(DemandLine(line.line, shape, line.key, line.count, True, preference))
            elif preference is not None:
                found.append(DemandLine(line.line, shape, line.key, line.count, False, preference))
            else:
                found.append(line)
        return tuple(found[:LINES_MAX])

    def _find_holder(self, line: DemandLine) -> int:
        """Return the cluster that is asked to hold nodes, or to preempt, for a line that is hard to place;
        -1: none. One cluster at a time."""
        now = self.context.now
        chosen = self.hold_at.get(line.line)
        if chosen is None or now >= chosen[1]:
            candidates = [
                v for v in self.context.views if v.state.snapshot is not None and not v.state.given_up
            ]
            needed = max(1, line.shape.gang)
            able = [v.index for v in candidates if v.count_slots(line.shape) >= needed]
            if not able:
                return -1
            turn = 0 if chosen is None else able.index(chosen[0]) + 1 if chosen[0] in able else 0
            chosen = (able[turn % len(able)], now + self.context.timings.hold_patience)
            self.hold_at[line.line] = chosen
        return chosen[0]

    def _is_crowded_out(self, ask: int) -> bool:
        """True if smaller tasks of this broker could keep a task of ``ask`` milli-CPU from ever fitting."""
        for other in self.context.queue.lines.values():  # noqa: SIM110  any() is slower
            if other.shape.ask.cpu < ask:
                return True
        return False

    def _send_demand(self, view: ClusterView, waiting: WaitingLines, force: bool) -> None:
        published = self.published[view.index]
        if not view.is_open:
            return
        if self.context.links.is_crowded(view.name):
            published.is_stale = True  # repeated with a heartbeat when the warden has caught up
            return
        if self.context.now < published.quiet_until and not force:
            return
        lines = self.demand_for(view, waiting)
        if force or lines != published.lines:
            published.lines, published.is_stale = lines, False
            self.context.links.send(self.context.effects, self.context.now, view.name, Demand(lines))

    def _send_claims(
        self,
        view: ClusterView,
        waiting: WaitingLines,
        task_batches: list[TaskBatch],
        releases: tuple[int, ...],
    ) -> None:
        published = self.published[view.index]
        demand: tuple[DemandLine, ...] | None = self.demand_for(view, waiting)
        if demand == published.lines or (
            demand and published.is_stale
        ):  # stale: sent with the next heartbeat, or the grant comes back at once
            demand = None
        else:
            published.lines = demand or ()
        batches: list[list[TaskBatch]] = [[]]
        size = weight = 0
        for task_batch in task_batches:
            payload = len(task_batch.template.payload)
            if size and (
                size + len(task_batch.tasks) > CLAIM_TASKS_MAX or weight + payload > MESSAGE_BYTES_MAX
            ):
                batches.append([])
                size = weight = 0
            batches[-1].append(task_batch)
            size += len(task_batch.tasks)
            weight += payload
        for batch in batches:
            last = batch is batches[-1]
            number = view.propose(batch)
            shards = dict.fromkeys(task_batch.template.shard for task_batch in batch)
            rounds = tuple((shard, view.state.rounds.get(shard, 0)) for shard in shards)
            claim = Claim(
                number,
                rounds,
                view.state.echo,
                tuple(batch),
                releases if last else (),
                demand if last else None,
                self.context.end_acks.take(view.name),
            )
            self.context.links.send(self.context.effects, self.context.now, view.name, claim)

    def restore(
        self,
        registered: list[PublishedDemand],
        best: dict[int, tuple[QueueKey, JobId]],
        hold_at: dict[int, tuple[int, int]],
    ) -> None:
        """Restore a dumped state."""
        self.published[: len(registered)] = registered
        self.best, self.hold_at = best, hold_at

    def check(self) -> None:
        """Assert that the cached waiting lines equal the lines of the queue."""
        lines = self.context.queue
        lines.check(self.context.jobs)
        if self._heads is lines.heads(self.context.jobs):
            for entry in self._waiting:
                line = lines.lines[entry.line]
                assert (entry.shape, entry.count) == (line.shape, line.count), f"line {entry.line}"
