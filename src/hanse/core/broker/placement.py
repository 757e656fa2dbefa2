"""How a broker finds room for what waits: claims on its view, demand at the wardens, and the use of their
grants.

The fast path claims nodes that the view shows free. What finds none is registered as demand with every
warden; a grant that comes back is bound to the best task of its line *at that moment*. A newcomer never
overtakes the line it belongs to.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from hanse.core.broker.cluster_view import STANDING_FULL, ClusterView
from hanse.core.broker.context import Desk
from hanse.core.broker.demand_publisher import Demands
from hanse.core.broker.elastic.sizing import Sizing
from hanse.core.broker.job_table import CLAIMED, PLACED, JobRecord, brief_of, mark_waiting, shape_of
from hanse.core.broker.queue import Line
from hanse.model.decision import Answered
from hanse.model.duration_stats import Experience
from hanse.model.events import Advised
from hanse.model.ids import JobId
from hanse.model.messages import Brief, Key, Lot, Offer, Shape
from hanse.model.resources import Resources
from hanse.policy.hashing import mix
from hanse.policy.interface import ClusterFacts

LOT_TASKS_MAX: Final = 100
"""Tasks in one lot."""
STANDING_LEAST: Final = 200
"""Clusters below this are tried last."""
EXPECTED_MAX: Final = 1_000_000
"""Lots whose start is awaited."""
BORROW_ROOM: Final = 4
"""How many times as much room as it needs a broker that was refused lately must see to claim others' shares.
What is scarce several brokers may want at once; so it rather asks the wardens. Otherwise enough is enough."""
NO_ROOM_SEEN: Final = "no room in any cluster's view"
LITTLE_TO_BORROW: Final = "too little room in the others' shares to take it unasked"
ASKED_FOR: Final = "no new room since it was refused or last looked for; the wardens are asked"
WARDENS_JUDGE: Final = "only the wardens can judge what it may run beside; they are asked"
NONE_OPEN: Final = "no cluster that it may use takes claims at the moment"
TOLD_OF_NONE: Final = f"{Answered.WAITING}:{NO_ROOM_SEEN}"
"""What a group's record says when it was last told so."""
TOLD_UNSEEN: Final = tuple(
    [f"{Answered.WAITING}:{why}" for why in (LITTLE_TO_BORROW, ASKED_FOR, WARDENS_JUDGE, NONE_OPEN)]
)
"""The same for what stays true as long as no cluster can be looked at."""

Head = tuple[Key, JobRecord, int]
"""The best waiting group of a line: its key, its job, its position there."""


class Expected(msgspec.Struct, gc=False):
    """Tasks that a warden has taken and that ought to start soon."""

    due: int
    cluster: int
    job: JobId
    tasks: tuple[int, ...]
    attempts: tuple[int, ...]


class Placing:
    """The placing side of a broker."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.demands = Demands(desk)
        self.sizing = Sizing(desk)
        self.offers: list[tuple[int, Offer, int]] = []
        """Cluster, offer, and when it must be used: grants awaiting the end of the conflict window."""
        self.spare: list[tuple[int, Offer, int]] = []
        """Cluster, offer, and when it is given back: grants without a task to use them, while claims are on
        their way to the same cluster. If those are refused, it may be for the sake of these very grants."""
        self.expected: list[Expected] = []
        self._briefs: dict[tuple[JobId, int], Brief] = {}
        self.lots: dict[int, list[Lot]] = {}
        """Claims of this step, by cluster."""
        self.releases: dict[int, list[int]] = {}
        self.touched: dict[int, None] = {}

    # --- the queue -----------------------------------------------------------------------------------------

    def enqueue(self, record: JobRecord, group: int, tasks: list[int], behind: bool = False) -> None:
        """Tasks of a group wait (again). The next one is the last of ``waiting``; ``behind``: after those."""
        desk = self.desk
        mark_waiting(record, tasks)
        waiting = record.waiting[group]
        if record.spec.gang:
            waiting += tasks
            self._enqueue_gang(record, group)
            return
        if record.lines[group] < 0:
            record.lines[group] = self.sizing.join(record, group)
        fresh = not waiting
        at = 0 if behind else len(waiting)
        waiting[at:at] = tasks
        line = desk.lines.lines[record.lines[group]]
        desk.lines.add(line, len(tasks))
        if fresh:
            desk.lines.push(desk.jobs, record, group, desk.order.key(record.facts()))
        self.touched[line.number] = None

    def _enqueue_gang(self, record: JobRecord, group: int) -> None:
        """A gang joins its line only when all that is left of it waits."""
        lines = self.desk.lines
        waiting = record.waiting[group]
        self.leave(record, group)
        if len(waiting) == record.unfinished[group]:
            record.lines[group] = number = lines.join(shape_of(record.spec, group, len(waiting)))
            lines.add(lines.lines[number], 1)
            lines.push(self.desk.jobs, record, group, self.desk.order.key(record.facts()))
            self.touched[number] = None

    def leave(self, record: JobRecord, group: int) -> None:
        """A group gives its line up: it is done, or its gang has broken. Its count must be settled before."""
        self._briefs.pop((record.id, group), None)
        if record.lines[group] >= 0:
            number, record.lines[group] = record.lines[group], -1
            self.desk.lines.leave(number)
            self.sizing.left(record, group)
            if number not in self.desk.lines.lines:
                self.touched[number] = None
                self.demands.hold_at.pop(number, None)
                for view in self.desk.views:  # the number may soon mean another shape
                    view.sight.exhausted.pop(number, None)

    def dequeue(self, record: JobRecord, group: int) -> list[int]:
        """Take all waiting tasks of a group out of the queue."""
        waiting, record.waiting[group] = record.waiting[group], []
        number = record.lines[group]
        if number >= 0 and waiting:
            lines = self.desk.lines
            lines.add(lines.lines[number], -1 if record.spec.gang else -len(waiting))
            self.touched[number] = None
        return waiting

    def resize(self, groups: Iterable[tuple[JobId, int]]) -> None:
        """More is known now: waiting groups whose size would be another one change lines."""
        desk = self.desk
        for job, group in groups:
            record = desk.jobs[job]
            if not record.waiting[group]:
                continue
            shape, _ = self.sizing.shape(record, group)
            if shape != desk.lines.lines[record.lines[group]].shape:
                desk.mark("broker.resized")
                tasks = self.dequeue(record, group)
                self.leave(record, group)
                self.enqueue(record, group, tasks)
                self.place_line(record.lines[group])

    def heard(self, peer: str, news: Experience) -> None:
        """A peer has learned something of elastic tasks: what waits may be asked for at another size."""
        self.resize(self.sizing.heard(peer, news))

    def advised(self, event: Advised) -> None:
        """The policy process has answered: what waits may be asked for at another size."""
        self.resize(self.sizing.advised(event))

    def rekey(self, record: JobRecord) -> None:
        """A job's key may have changed with its progress."""
        key = self.desk.order.key(record.facts())
        for group, waiting in enumerate(record.waiting):
            if waiting and record.lines[group] >= 0 and key != record.keys[group]:
                self.desk.lines.push(self.desk.jobs, record, group, key)
                self.touched[record.lines[group]] = None

    # --- the fast path -------------------------------------------------------------------------------------

    def place_line(self, number: int) -> None:
        """Claim room for a line's tasks, best key first, until none is left or no room is seen."""
        head = self.desk.lines.head(number, self.desk.jobs)
        if head is not None:
            self._place_from(number, head, {})

    def _place_from(self, number: int, head: Head, open_to: dict[str, list[ClusterView]]) -> None:
        """The same for a line whose best task is known. ``open_to``: estate -> clusters that would take a
        claim, as far as has been looked up.

        What depends on other jobs' places only the wardens can judge: it waits for grants.
        """
        desk = self.desk
        line = desk.lines.lines[number]
        shape = line.shape
        after: Head | None = head
        while after is not None:
            _, record, group = after
            views = open_to.get(record.estate)
            if views is None:
                views = [view for view in desk.views if self.can_claim(view, record.estate)]
                open_to[record.estate] = views
            if shape.affinity:
                views = []
            else:
                views = [view for view in views if number not in view.sight.exhausted and view.allows(shape)]
            told = record.told[group]
            # What is known to be futile is no part of the state: it may save work, never a word.
            if told == TOLD_OF_NONE or (told in TOLD_UNSEEN and not views) or not desk.config.decisions:
                for view in views:
                    if not view.futile(shape):
                        break
                else:
                    for view in views:
                        view.sight.exhausted[number] = True
                    return
            if not self._place_group(line, record, group, views):
                return
            after = desk.lines.head(number, desk.jobs)

    def place_all(self) -> None:
        """Good news has come: try every line again, best key first."""
        open_to: dict[str, list[ClusterView]] = {}
        for key, number, record, group in self.desk.lines.heads(self.desk.jobs):
            self._place_from(number, (key, record, group), open_to)

    def _place_group(self, line: Line, record: JobRecord, group: int, views: list[ClusterView]) -> bool:
        """Claim for as many waiting tasks of a group as there is room; True if that was all of them.

        Our own shares of all clusters come first. Room is borrowed only then, from every cluster in
        proportion to what it has left, so that what several brokers borrow at once has a place; and if claims
        were refused lately, only where there is plenty. Who has its data somewhere stays close to it.
        """
        found: dict[str, int] = {}
        unused: dict[str, int] = {}
        ranked = self.sizing.led(record, group, self._ranked(record, views))
        if len(ranked) > 1 and not (line.shape.gang or line.shape.ask_max or record.spec.data):
            for view in ranked:
                if not record.waiting[group]:
                    break
                found[view.name] = self._place_own(view, line, record, group)
            wary = any(self.desk.now < view.sight.wary_until for view in self.desk.views)
            enough = (BORROW_ROOM if wary else 1) * len(record.waiting[group])
            if enough:
                unused = {view.name: min(enough, view.room_for(line.shape)) for view in ranked}
            if sum(unused.values()) < enough:
                for view in ranked:
                    view.sight.exhausted[line.number] = True
                ranked = []
        most, room = len(record.waiting[group]), sum(unused.values())
        for view in ranked:
            if not record.waiting[group]:
                break
            part = -(-most * unused[view.name] // room) if room else most
            got = self._place_in(view, line, record, group, part) if part else 0
            if not got:
                view.sight.exhausted[line.number] = True
            found[view.name] = found.get(view.name, 0) + got
        placed = sum(found.values())
        left = len(record.waiting[group])
        if placed:
            self.touched[line.number] = None
            considered = list(found.items())
            self.desk.decide(record, group, Answered.PLACED, placed, "claimed room in view", considered)
        if left:
            reason = LITTLE_TO_BORROW if any(unused.values()) else NO_ROOM_SEEN
            reason = reason if views else self._unseen(line.shape, record.estate)
            considered = [(name, got + unused.get(name, 0)) for name, got in found.items()]
            self.desk.decide(record, group, Answered.WAITING, left, reason, considered)
        return not left

    def _unseen(self, shape: Shape, estate: str) -> str:
        """Why no cluster was looked at for room."""
        if shape.affinity:
            return WARDENS_JUDGE
        takers = [view for view in self.desk.views if self.can_claim(view, estate) and view.allows(shape)]
        return ASKED_FOR if takers else NONE_OPEN

    def _ranked(self, record: JobRecord, views: list[ClusterView]) -> list[ClusterView]:
        """In which order to look there: in good standing first."""
        desk = self.desk
        if len(views) < 2:
            return views
        data = record.spec.data
        facts = [
            ClusterFacts(v.name, v.sight.standing, data.index(v.name) if v.name in data else -1)
            for v in views
        ]
        order = desk.rank.rank(facts, mix(desk.seed, desk.steps, record.id) % len(views))
        order.sort(key=lambda i: views[i].sight.standing < STANDING_LEAST)
        return [views[i] for i in order]

    def can_claim(self, view: ClusterView, estate: str) -> bool:
        """Whether a claim for this estate would be taken there, as far as is known."""
        sight = view.sight
        known = sight.rounds.get(estate, 0)
        return (
            view.is_open
            and known > 0
            and sight.snapshot is not None
            and known >= sight.least_round.get(estate, 0)
            and not sight.given_up
            and self.desk.now >= sight.closed_until
            and not self.desk.post.crowded(view.name)
        )

    def _place_own(self, view: ClusterView, line: Line, record: JobRecord, group: int) -> int:
        """Claim what is free of our own share of a cluster; how many tasks got some."""
        vector = line.shape.ask.vector(view.dimensions)
        if vector is None or view.futile(line.shape):
            return 0
        own, usable = view.fit(line.shape).own, view.usable
        start = mix(self.desk.seed, self.desk.steps, view.index) % max(1, usable.nodes)
        count = len(record.waiting[group])
        nodes = self.desk.placer.place(usable, vector, own, start, count, 0, view.table.count)
        if nodes:
            self._claim(view, record, group, nodes, line.shape.ask)
        return len(nodes)

    def _place_in(self, view: ClusterView, line: Line, record: JobRecord, group: int, most: int) -> int:
        """Claim room in one cluster for up to so many tasks; how many got some."""
        shape = line.shape
        if view.futile(shape):
            return 0
        fit = view.fit(shape)
        count = min(most, len(record.waiting[group]))
        start = mix(self.desk.seed, self.desk.steps, view.index) % max(1, view.usable.nodes)
        sizes = self.desk.sizer.ladder(shape.ask, shape.ask_max) if shape.ask_max else (shape.ask,)
        place, counts = self.desk.placer.place, view.table.count
        for size in sizes:
            vector = size.vector(view.dimensions)
            if vector is None:
                continue
            nodes: list[int] = []
            if not shape.gang:
                nodes = place(view.usable, vector, fit.own, start, count, 0, counts)
            if len(nodes) < count:
                nodes += place(view.usable, vector, fit.mask, start, count - len(nodes), 0, counts)
            if len(nodes) == count or (size == shape.ask and nodes and not shape.gang):
                self._claim(view, record, group, nodes, size)
                return len(nodes)
            for node in nodes:
                view.usable.credit(node, vector)
        fit.full_at = view.gains.mark
        return 0

    def _claim(
        self, view: ClusterView, record: JobRecord, group: int, nodes: list[int], size: Resources
    ) -> None:
        tasks = _take_last(record.waiting[group], len(nodes))
        lines = self.desk.lines
        lines.add(lines.lines[record.lines[group]], -1 if record.spec.gang else -len(tasks))
        most = len(tasks) if record.spec.gang else LOT_TASKS_MAX
        for at in range(0, len(tasks), most):
            part = slice(at, at + most)
            self._add_lot(view, record, group, tasks[part], tuple(nodes[part]), size, 0)

    def _add_lot(
        self, view: ClusterView, record: JobRecord, group: int, tasks: list[int], nodes: tuple[int, ...],
        size: Resources, lease: int,
    ) -> None:  # fmt: skip
        state = PLACED if lease else CLAIMED
        states, attempt, place, position = record.state, record.attempt, record.place, view.index
        for index in tasks:
            states[index] = state
            attempt[index] += 1
            place[index] = position
        attempts = tuple([attempt[index] for index in tasks])
        if record.spec.groups[group].ask_max is not None:
            self.sizing.placed(record, group, tasks, size)
        brief = self._brief(record, group)
        lot = Lot(record.id, group, brief, tuple(tasks), attempts, nodes, size, lease)
        self.lots.setdefault(view.index, []).append(lot)
        if lease:
            self.expect(view.index, lot)
        else:
            view.reserve(lot)

    def _brief(self, record: JobRecord, group: int) -> Brief:
        key = (record.id, group)
        brief = self._briefs.get(key)
        if brief is None:
            shape = self.desk.lines.lines[record.lines[group]].shape
            brief = self._briefs[key] = brief_of(record.spec, group, shape, record.estate)
        return brief

    def expect(self, cluster: int, lot: Lot) -> None:
        """A warden has taken these: they ought to start before the deadline."""
        due = self.desk.now + self.desk.timings.start_deadline
        self.expected.append(Expected(due, cluster, lot.job, lot.tasks, lot.attempts))
        assert len(self.expected) <= EXPECTED_MAX

    # --- grants --------------------------------------------------------------------------------------------

    def offered(self, cluster: int, offers: tuple[Offer, ...]) -> None:
        """Grants have come: bind them now, or when the conflict window closes."""
        window = self.desk.timings.conflict_window
        for offer in offers:
            self.offers.append((cluster, offer, self.desk.now + window))
            self.demands.granted(cluster, offer.line)
        if not window:
            self.bind_offers()

    def bind_offers(self) -> None:
        """Use the grants at hand: of several for one line, those with the largest score times prior first."""
        offers, self.offers = self.offers, []
        if len(offers) > 1:
            offers.sort(key=lambda item: (-item[1].score * item[1].prior, item[0], item[1].lease))
        for cluster, offer, _ in offers:
            view = self.desk.views[cluster]
            if self._outbid(offer):
                self.desk.mark("broker.outbid")
                self.releases.setdefault(cluster, []).append(offer.lease)
                self.demands.registered[cluster].stale = False  # it must hear of the worse key with it
                self.demands.best.pop(offer.line, None)  # and so must the others, or they err next
            elif not self._bind(view, offer):
                if view.sight.claims:
                    self.desk.mark("broker.spared_grant")
                    self.spare.append((cluster, offer, self.desk.now + self.desk.timings.grant_lease // 2))
                else:
                    self._give_back(cluster, offer)
            self.touched.setdefault(offer.line, None)

    def _outbid(self, offer: Offer) -> bool:
        """Whether somebody else's best task goes before ours by now: the warden did not know that our head
        has got worse. Giving the room on keeps the one order of the whole league."""
        if not offer.rival or offer.line not in self.desk.lines.lines:
            return False
        head = self.desk.lines.head(offer.line, self.desk.jobs)
        return head is not None and head[0] > offer.rival

    def use_spare(self, answered: int = -1) -> None:
        """Claims to a cluster were answered, or time has passed: use the grants kept for this case, or give
        them back."""
        kept = []
        for cluster, offer, until in self.spare:
            view = self.desk.views[cluster]
            if cluster == answered and self._bind(view, offer):
                self.touched.setdefault(offer.line, None)
            elif self.desk.now < until and view.sight.claims:
                kept.append((cluster, offer, until))
            else:
                self._give_back(cluster, offer)
        self.spare = kept

    def _give_back(self, cluster: int, offer: Offer) -> None:
        self.desk.mark("broker.released_grant")
        self.releases.setdefault(cluster, []).append(offer.lease)
        line = self.desk.lines.lines.get(offer.line)
        if line is not None and line.count:
            self.demands.registered[cluster].stale = True
        self.touched.setdefault(offer.line, None)

    def _bind(self, view: ClusterView, offer: Offer) -> bool:
        desk = self.desk
        line = desk.lines.lines.get(offer.line)
        if line is None or len(offer.nodes) != max(1, line.shape.gang):
            return False
        head = desk.lines.head(offer.line, desk.jobs)
        if head is None:
            return False
        _, record, group = head
        if not self.can_claim(view, record.estate) or not line.shape.may_use(view.name):
            return False
        tasks = _take_last(record.waiting[group], len(offer.nodes))
        desk.lines.add(line, -1)
        size = line.shape.ask
        if line.shape.ask_max is not None:
            size = desk.sizer.ladder(line.shape.ask, line.shape.ask_max)[0]
        self._add_lot(view, record, group, tasks, offer.nodes, size, offer.lease)
        desk.decide(record, group, Answered.PLACED, len(tasks), f"bound room granted by {view.name}")
        return True

    # --- telling the wardens -------------------------------------------------------------------------------

    def flush(self, force: bool = False) -> None:
        """Send claims, releases, and demand where it is worth a message."""
        changed = force or self.demands.improved(self.touched)
        self.touched.clear()
        if changed or self.lots or self.releases:
            self.demands.send(self.lots, self.releases, changed, force)
            self.lots.clear()
            self.releases.clear()

    def restore(
        self,
        offers: list[tuple[int, Offer, int]],
        spare: list[tuple[int, Offer, int]],
        expected: list[Expected],
    ) -> None:
        """Take a dumped state."""
        self.offers, self.spare, self.expected = offers, spare, expected
        self._briefs.clear()

    def judge(self, view: ClusterView, good: bool) -> None:
        """A cluster kept or broke its word: its standing follows the outcome."""
        sight = view.sight
        sight.standing += (STANDING_FULL - sight.standing) // 8 + 1 if good else -sight.standing // 4
        sight.standing = max(0, min(STANDING_FULL, sight.standing))


def _take_last(waiting: list[int], count: int) -> list[int]:
    """Take so many from the end of a queue, the last one first."""
    tasks = waiting[-count:]
    del waiting[-count:]
    tasks.reverse()
    return tasks
