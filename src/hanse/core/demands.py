"""What a broker tells the wardens: its claims, and what it has waiting, where that is worth a message.

The demand goes out when a line appears, empties or gets a better job at its head, with every claim if it
has changed, and with the beat otherwise: a count that is a little out of date does no harm, nor does a key
that has got better because the same job has made progress.
"""

from typing import Final

import msgspec

from hanse.core.desk import Desk
from hanse.core.lines import Line, Waiting
from hanse.core.portions import PORTION_BYTES
from hanse.core.view import ClusterView
from hanse.core.wants import LINES_MAX
from hanse.model.ids import JobId
from hanse.model.messages import Claim, Demand, DemandLine, Key, Lot

CLAIM_TASKS_MAX: Final = 100
"""Placements in one claim."""


class Registered(msgspec.Struct, gc=False):
    """What one warden was last told of the demand."""

    lines: tuple[DemandLine, ...] = ()
    stale: bool = False
    """A grant was given back though a task waits, so the warden's count is too low: say it again with the
    next beat. At once it would come back at once."""


class Demands:
    """The demand of one broker, as every warden was told of it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.registered: list[Registered] = [Registered() for _ in desk.views]
        self.best: dict[int, tuple[Key, JobId]] = {}
        """Line -> key and job of its head. Another job with a better key is worth a message to everybody;
        a worse key is not, nor is progress of the same job."""
        self.hold_at: dict[int, tuple[int, int]] = {}
        """Line -> cluster that is asked to keep room back for it, and until when."""

    def send(
        self, lots: dict[int, list[Lot]], releases: dict[int, list[int]], changed: bool, force: bool
    ) -> None:
        """Send claims and releases by cluster, and the demand to the others if it has ``changed``."""
        heads = self.heads()
        for view in self.desk.views:
            index = view.index
            if index in lots or index in releases:
                self._send_claims(view, heads, lots.get(index, []), tuple(releases.get(index, ())))
            elif changed:
                self._send_demand(view, heads, force)

    @property
    def outdated(self) -> bool:
        """Whether some warden was told of work that waits, though none does."""
        for told in self.registered:  # noqa: SIM110  with every beat: any() costs more than it looks at
            if told.lines:
                return True
        return False

    def remind(self) -> None:
        """With every beat: repeat the demand where the warden's idea of it is out of date."""
        heads = self.heads()
        if not heads:
            self.best.clear()
        for view in self.desk.views:
            self._send_demand(view, heads, self.registered[view.index].stale)

    def granted(self, cluster: int, line: int) -> None:
        """A grant lowers the warden's count, so what it was told is one less now."""
        told = self.registered[cluster]
        told.lines = tuple(
            [
                msgspec.structs.replace(entry, count=entry.count - 1) if entry.line == line else entry
                for entry in told.lines
            ]
        )

    def improved(self, touched: dict[int, None]) -> bool:
        """Whether a line has appeared, emptied or got a better job at its head."""
        desk = self.desk
        improved = False
        for number in touched:
            line = desk.lines.lines.get(number)
            head = desk.lines.head(number, desk.jobs) if line is not None and line.count else None
            told = self.best.get(number)
            if head is None:
                if told is not None:
                    del self.best[number]
                    improved = True
            else:
                key, job = self.best[number] = (head[0], head[1].id)
                improved = improved or told is None or (key < told[0] and job != told[1])
        return improved

    def heads(self) -> Waiting:
        """What waits, best first."""
        return self.desk.lines.heads(self.desk.jobs)

    def demand_for(self, view: ClusterView, heads: Waiting) -> tuple[DemandLine, ...]:
        """The demand lines for one warden, best first. What has not changed since it was told is the same
        object, which makes comparing quick."""
        told = iter(self.registered[view.index].lines)
        found: list[DemandLine] = []
        for key, number, line, _, _ in heads:
            shape = line.shape
            if (shape.clusters_allowed or shape.clusters_forbidden) and not shape.may_use(view.name):
                continue
            hard = shape.gang or shape.priority > 0 or 2 * shape.ask.cpu > view.median_cpu
            hold = bool(hard) and self._may_hold(view, line)
            old = next(told, None)  # what stood there
            if (
                old is not None
                and old.line == number
                and old.count == line.count
                and old.shape is shape
                and old.hold == hold
                and old.key == key
            ):
                found.append(old)
            else:
                found.append(DemandLine(number, shape, key, line.count, hold))
        return tuple(found[:LINES_MAX])

    def _may_hold(self, view: ClusterView, line: Line) -> bool:
        """Ask one warden at a time to keep room back for a line that is hard to fit, or to preempt for it."""
        shape = line.shape
        if not shape.gang and shape.priority <= 0 and not self._large(view, shape.ask.cpu):
            return False
        now = self.desk.now
        chosen = self.hold_at.get(line.number)
        if chosen is None or now >= chosen[1]:
            candidates = [v for v in self.desk.views if v.sight.snapshot is not None and not v.sight.given_up]
            needed = max(1, line.shape.gang)
            able = [v.index for v in candidates if v.slots(line.shape) >= needed]
            if not able:
                return False
            turn = 0 if chosen is None else able.index(chosen[0]) + 1 if chosen[0] in able else 0
            chosen = (able[turn % len(able)], now + self.desk.timings.hold_patience)
            self.hold_at[line.number] = chosen
        return chosen[0] == view.index

    def _large(self, view: ClusterView, ask: int) -> bool:
        """Whether smaller tasks of this broker could keep one of so many milli-CPU from ever fitting."""
        if 2 * ask > view.median_cpu:
            for other in self.desk.lines.lines.values():
                if other.shape.ask.cpu < ask:
                    return True
        return False

    def _send_demand(self, view: ClusterView, heads: Waiting, force: bool) -> None:
        told = self.registered[view.index]
        if self.desk.post.crowded(view.name):
            told.stale = True  # it is away; the beat says it again when it has caught up
            return
        lines = self.demand_for(view, heads)
        if force or lines != told.lines:
            told.lines, told.stale = lines, False
            self.desk.post.send(self.desk.out, self.desk.now, view.name, Demand(lines))

    def _send_claims(
        self, view: ClusterView, heads: Waiting, lots: list[Lot], releases: tuple[int, ...]
    ) -> None:
        told = self.registered[view.index]
        demand: tuple[DemandLine, ...] | None = self.demand_for(view, heads)
        if demand == told.lines or (
            demand and told.stale
        ):  # stale: with the next beat, or it would come back at once
            demand = None
        else:
            told.lines = demand or ()
        batches: list[list[Lot]] = [[]]
        size = weight = 0
        for lot in lots:
            payload = len(lot.brief.payload)
            if size and (size + len(lot.tasks) > CLAIM_TASKS_MAX or weight + payload > PORTION_BYTES):
                batches.append([])
                size = weight = 0
            batches[-1].append(lot)
            size += len(lot.tasks)
            weight += payload
        for batch in batches:
            last = batch is batches[-1]
            number = view.propose(batch)
            estates = dict.fromkeys(lot.brief.estate for lot in batch)
            rounds = tuple((estate, view.sight.rounds.get(estate, 0)) for estate in estates)
            claim = Claim(
                number,
                rounds,
                view.sight.echo,
                tuple(batch),
                releases if last else (),
                demand if last else None,
                self.desk.settling.take(view.name),
            )
            self.desk.post.send(self.desk.out, self.desk.now, view.name, claim)

    def restore(
        self,
        registered: list[Registered],
        best: dict[int, tuple[Key, JobId]],
        hold_at: dict[int, tuple[int, int]],
    ) -> None:
        """Take a dumped state."""
        self.registered[: len(registered)] = registered
        self.best, self.hold_at = best, hold_at
