"""How a warden gives freed room to whoever waits for it with the best key.

A node that frees goes to the first want, in the global order, that fits it; a new demand is served from
what is free. A gang, or a task too large for what is free, may ask the warden to *hold*: nodes are then
kept back for it, nearest to fitting first, until all of it fits at once. A want of higher priority than
running preemptible work may have that work stopped, on one node, lowest priority and youngest first, never
more than is needed.
"""

from collections.abc import Callable
from operator import add, lt
from typing import Final

import msgspec

from hanse.core.config import WardenConfig
from hanse.core.warden.demand_table import Want, Wants
from hanse.core.warden.ledger import RUNNING, Fit, Ledger, Run
from hanse.model.messages import Key, Offer
from hanse.model.resources import Vector
from hanse.policy.kernels import FIRST, pick
from hanse.policy.node_columns import has_bit, mask_indices

GRANTS_MAX: Final = 1_024
"""Slots granted in answer to one message; the rest follows as these are bound."""
SLOTS_MAX: Final = 65_536
"""Slots granted at one warden and not yet bound, those of a gang each counted. What would go beyond waits for
earlier grants to be bound, given back or to expire."""


class Hold(msgspec.Struct):
    """Nodes kept back for one want."""

    broker: str
    line: int
    nodes: list[int]


class Grants:
    """The granting side of a warden."""

    def __init__(self, config: WardenConfig, ledger: Ledger, mark: Callable[[str], None]) -> None:
        self.config = config
        self.timings = config.timings
        self.ledger = ledger
        self.wants = Wants()
        self.hold: Hold | None = None
        self.offers: dict[str, list[Offer]] = {}
        """Offers made in this step, by broker."""
        self.victims: list[Run] = []
        """Runs to be preempted in this step."""
        self.silent: dict[str, bool] = {}
        """Brokers that have not been heard from for long: their demand is passed over."""
        self.preempt_at = 0
        """No further preemption before this time: the room of the last one must first find its use."""
        self.freed: list[int] = []
        """Nodes to be offered before this step ends."""
        self.kept: Callable[[], int] = lambda: 0
        """How many attempts the warden has to keep."""
        self.start: Callable[[], int] = lambda: 0
        """A number that looks random, new with every event: where to begin looking for room."""
        self._mark = mark

    def full(self) -> bool:
        """Whether the warden keeps as many attempts as it can: what it granted now, it would have to refuse
        when it is bound."""
        return self.kept() >= self.config.runs_max

    # --- granting ------------------------------------------------------------------------------------------

    def serve_node(self, now: int, node: int) -> None:
        """Room has come free on a node: offer it in the global order until nobody's fits."""
        ledger = self.ledger
        if not self.wants.order or not ledger.is_open(node) or self.full():
            return
        free = ledger.room.free_of(node)
        for want in self.wants.order:
            if want.count <= 0 or want.broker in self.silent:
                continue
            fit = ledger.fit(want.shape)
            if want.shape.gang:
                if not self._futile(want, fit):
                    self._serve_gang(now, want, fit)
                    free = ledger.room.free_of(node)
                continue
            if fit.ask is None or any(map(lt, free, fit.ask)) or not self._admits(want, fit, node):
                continue
            while (
                self._grant(now, want, fit, [node])
                and not fit.dynamic  # what it may stand next to is settled when it is bound
                and want.count > 0
                and ledger.room.fits(node, fit.ask)
            ):
                pass
            free = ledger.room.free_of(node)

    def _admits(self, want: Want, fit: Fit, node: int) -> bool:
        mask = fit.whole if self.hold is not None and self._holds_for(want) else fit.mask
        if fit.dynamic:
            mask = self.ledger.nearby(want.shape, fit, mask).mask
        return has_bit(mask, node)

    def _holds_for(self, want: Want) -> bool:
        hold = self.hold
        return hold is not None and hold.line == want.line and hold.broker == want.broker

    def serve_wants(self, now: int, wants: list[Want]) -> None:
        """A broker's demand was registered: serve it, best first, from what is free; then see to holds and
        preemption."""
        if wants and wants[0].broker not in self.silent and not self.full():
            for want in wants:
                self._serve(now, want)
        self.review(now)

    def serve_social(self, now: int) -> None:
        """Labelled tasks have come or gone: those who care for such company may fit now."""
        self.ledger.social = False
        for want in self.wants.order:
            if (want.shape.affinity or want.shape.labels) and want.broker not in self.silent:
                self._serve(now, want)

    def _serve(self, now: int, want: Want) -> None:
        fit = self.ledger.fit(want.shape)
        if self._futile(want, fit):
            return
        if want.shape.gang:
            self._serve_gang(now, want, fit)
            return
        count = min(want.count, GRANTS_MAX, SLOTS_MAX - self.ledger.slots)
        if count > 0:
            for node in self._find(want, fit, count, self.start() % max(1, self.ledger.nodes)):
                self.ledger.touched[node] = None
                self._lease(now, want, fit, [node])

    def _serve_gang(self, now: int, want: Want, fit: Fit) -> None:
        if want.count <= 0:
            return
        size = want.shape.gang
        if self.ledger.slots + size > SLOTS_MAX:
            self._mark("warden.grants_full")
            return
        nodes = self._find(want, fit, size, 0)
        if len(nodes) < size:
            for node in nodes:
                self.ledger.room.credit(node, fit.ask or ())
            return
        self.ledger.touched.update(dict.fromkeys(nodes))
        self._mark("warden.granted_gang")
        self._lease(now, want, fit, nodes)

    def _futile(self, want: Want, fit: Fit) -> bool:
        """Whether there is surely no room for a want."""
        if fit.ask is None:
            return True
        if self.hold is not None and self._holds_for(want):
            return False
        ledger = self.ledger
        if fit.full_at >= 0 and ledger.gains.futile(fit, ledger.room):
            return True
        if not fit.dynamic:
            return False
        near = ledger.nearby(want.shape, fit, fit.mask)
        return near.full_at >= 0 and ledger.gains.futile(near, ledger.room)

    def _find(self, want: Want, fit: Fit, count: int, start: int) -> list[int]:
        """Nodes with room for up to ``count`` of a want, debited."""
        ledger = self.ledger
        among = fit.whole if self.hold is not None and self._holds_for(want) else fit.mask
        near = ledger.nearby(want.shape, fit, among) if fit.dynamic else None
        mask = among if near is None else near.mask
        nodes = pick(ledger.room, fit.ask or (), mask, start, count, FIRST, fit.alone, None)
        if len(nodes) < count and not (nodes and fit.alone):
            if mask is fit.mask:
                fit.full_at = ledger.gains.mark
            elif near is not None:
                near.full_at = ledger.gains.mark
        return nodes

    def _grant(self, now: int, want: Want, fit: Fit, nodes: list[int]) -> bool:
        if self.ledger.slots + len(nodes) > SLOTS_MAX or fit.ask is None:
            return False
        for node in nodes:
            self.ledger.take(node, fit.ask)
        self._lease(now, want, fit, nodes)
        return True

    def _lease(self, now: int, want: Want, fit: Fit, nodes: list[int]) -> None:
        want.count -= 1
        held = self._holds_for(want)
        if held:
            self._mark("warden.hold_served")
            self.release_hold()
        lease = self.ledger.lease(want.broker, want.line, nodes, want.shape, now + self.timings.grant_lease)
        busy = len(self.ledger.runs) * 1000 // max(1, self.ledger.nodes)
        offer = Offer(
            lease.number,
            want.line,
            tuple(nodes),
            score=1000 // (1 + want.count),
            prior=1000 * 1000 // (1000 + busy),
            rival=self._rival(want, fit, nodes[0]) if len(nodes) == 1 and not held else (),
        )
        self.offers.setdefault(want.broker, []).append(offer)

    def _rival(self, want: Want, given: Fit, node: int) -> Key:
        """The best key of another broker that could use what this want was given on a node."""
        ledger = self.ledger
        room: Vector = ()
        for other in self.wants.order:
            if other.broker == want.broker or other.count <= 0 or other.broker in self.silent:
                continue
            if other.shape is want.shape or other.shape == want.shape:
                return other.key
            if other.shape.gang:
                continue
            fit = ledger.fit(other.shape)
            room = room or tuple(map(add, ledger.room.free_of(node), given.ask or ()))
            if fit.ask is None or any(map(lt, room, fit.ask)) or not self._admits(other, fit, node):
                continue
            return other.key
        return ()

    # --- holds and preemption ------------------------------------------------------------------------------

    def review(self, now: int) -> None:
        """See whether the best want that asks for it needs nodes kept back, or may preempt."""
        if self.hold is not None:
            want = self.wants.find(self.hold.broker, self.hold.line)
            if want is None or want.count <= 0 or not want.hold or want.broker in self.silent:
                self.release_hold()
        for want in self.wants.order:
            if not want.hold or want.count <= 0 or want.broker in self.silent:
                continue
            if want.shape.priority > 0 and not want.shape.gang:
                self._preempt(now, want)
            else:
                self._hold(want)
            break

    def _hold(self, want: Want) -> None:
        if self.hold is not None and not self._holds_for(want):
            held = self.wants.find(self.hold.broker, self.hold.line)
            if held is not None and held.rank() < want.rank():
                return
        fit = self.ledger.fit(want.shape)
        if fit.ask is None or self._holds_for(want):
            return
        needed = want.shape.gang or 1
        nodes: list[int] = []
        for node in sorted(
            mask_indices(fit.whole, self.ledger.nodes), key=lambda n: (-self._slots_free(n, fit.ask), n)
        ):
            nodes.append(node)
            needed -= 1 if want.shape.alone else self.ledger.slots_of(self.ledger.capacity[node], fit.ask)
            if needed <= 0:
                self._mark("warden.holds_room")
                self._keep(want, nodes)
                return

    def _keep(self, want: Want, nodes: list[int]) -> None:
        """Hold these nodes for a want, instead of what was held; what changes hands is offered at once."""
        self.release_hold()
        self.ledger.hold(nodes)
        self.hold = Hold(want.broker, want.line, nodes)
        self.freed += nodes

    def _slots_free(self, node: int, ask: Vector | None) -> int:
        return self.ledger.slots_of(self.ledger.room.free_of(node), ask or ())

    def release_hold(self) -> None:
        """Open the held nodes again."""
        if self.hold is not None:
            self.freed += self.hold.nodes
            self.hold = None
            self.ledger.hold([])

    def _preempt(self, now: int, want: Want) -> None:
        if self._holds_for(want) or now < self.preempt_at:
            return  # room that was made a moment ago is still on its way
        if self.hold is not None:
            held = self.wants.find(self.hold.broker, self.hold.line)
            if held is not None and held.rank() < want.rank():
                return
            self.release_hold()
        fit = self.ledger.fit(want.shape)
        if fit.ask is None:
            return
        best: tuple[int, int, int, list[Run]] | None = None
        for node, runs in self._preemptible(now, want).items():
            if not has_bit(fit.mask, node):
                continue
            victims = _fewest(runs, self.ledger.room.free_of(node), fit.ask)
            if victims:
                cost = (max(v.brief.shape.priority for v in victims), len(victims), node, victims)
                if best is None or cost[:3] < best[:3]:
                    best = cost
        if best is not None:
            self._mark("warden.preempted")
            self.victims += best[3]
            self.preempt_at = now + max(run.brief.grace for run in best[3]) + self.timings.preempt_after
            self._keep(want, [best[2]])

    def _preemptible(self, now: int, want: Want) -> dict[int, list[Run]]:
        nodes: dict[int, list[Run]] = {}
        for run in self.ledger.runs.values():
            shape = run.brief.shape
            if (
                shape.preemptible
                and run.state == RUNNING
                and not run.stop
                and shape.priority < want.shape.priority
                and not shape.gang
                and now - run.since >= self.timings.preempt_after
            ):
                nodes.setdefault(run.node, []).append(run)
        return nodes

    def check(self) -> None:
        """Order, bounds, and that held nodes belong to a hold."""
        self.wants.check()
        assert self.ledger.slots == sum([len(lease.nodes) for lease in self.ledger.leases.values()])
        assert self.ledger.slots <= SLOTS_MAX
        assert (self.hold is not None) == bool(self.ledger.held)


def _fewest(runs: list[Run], free: Vector, ask: Vector) -> list[Run]:
    """The victims that make room for ``ask`` on one node: lowest priority first, then the youngest; [] if
    none do."""
    room = list(free)
    chosen: list[Run] = []
    for run in sorted(runs, key=lambda r: (r.brief.shape.priority, -r.since, r.task)):
        if all(have >= want for have, want in zip(room, ask, strict=True)):
            break
        room = [have + more for have, more in zip(room, run.amount, strict=True)]
        chosen.append(run)
    fits = all(have >= want for have, want in zip(room, ask, strict=True))
    return [run for run in chosen if fits]
