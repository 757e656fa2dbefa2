"""Whose jobs run here: estates, their owners and heirs, and the lease under which their attempts may run.

An *estate* is the set of jobs a broker has accepted. Exactly one broker owns it at a time, as far as any
one warden is concerned; its heir may take it over only if *every* warden agrees, so two brokers never act
for one estate. A warden holds one lease per estate, renewed by its owner's replies to beats and counted
from when the beat was sent. When it lapses a new *round* begins, and claims of the old round are refused
for ever.

An adopted estate of which nothing is left is *closed* by its owner: it is forgotten here, and its generation
is fenced for ever. Generations are kept as ranges, so a broker that comes and goes a thousand times takes one
line.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

import msgspec

from hanse.core.broker.failover.terms import adoption_of
from hanse.core.config import WardenConfig
from hanse.core.messaging.link import NEVER
from hanse.model.messages import Adopt, Estate, EstateId, Refusal, Register, Return
from hanse.model.messages.shard_teardown import Close, Closed

ESTATES_PER_BROKER_MAX: Final = 1_024
"""Open estates founded by one broker; further ones are refused as busy until some are closed. A broker founds
one when its last one was adopted, so only one that was adopted from a thousand times, by peers that have not
finished its jobs, comes near."""
RANGES_MAX: Final = 1_024
"""Ranges of closed generations kept of one broker; beyond it the two oldest become one, with what is between
them. Open estates are looked up first, so that fences none of them."""
CLOSED_TERM: Final = 1 << 61
"""The term of a closed estate: above all that an owner or an heir can name."""


Rounds = tuple[tuple[EstateId, int], ...]
"""Estates and the lease round of each."""


class TenureRecord(msgspec.Struct, gc=False):
    """One estate at one warden."""

    owner: str
    former: str
    """Who owned it before an adoption (empty: nobody had said so yet); the owner itself otherwise."""
    heir: str
    term: int
    round: int = 1
    until: int = 0
    lapsed: bool = True
    proposed_at: int = -1
    """When the present round was first told to the owner, if it has not begun yet."""


class Tenure:
    """All estates at one warden."""

    def __init__(self, config: WardenConfig, mark: Callable[[str], None]) -> None:
        self.lease = config.timings.cluster_lease
        self.estates: dict[EstateId, TenureRecord] = {}
        self.closed: dict[str, list[tuple[int, int]]] = {}
        """Broker -> generations of its estates that are closed for ever: first and last of each range, in
        order."""
        self.due = NEVER
        self._first = 0
        """How many leases run out then."""
        self._lapsed: tuple[EstateId, ...] | None = None
        """What ``lapsed`` said last, until something of that kind changes: every beat of a runner asks."""
        self._rounds: dict[str, Rounds] | None = None
        """What ``all_rounds`` said last, until something of that kind changes: every beat to brokers asks."""
        self._rounds_until = NEVER
        """When one of those rounds is dead, if it has not begun."""
        self._mark = mark

    def owner(self, estate: EstateId) -> str:
        """Whom to tell about an estate's attempts; empty if nobody has claimed it."""
        record = self.estates.get(estate)
        return record.owner if record else ""

    def rounds(self, broker: str, now: int) -> Rounds:
        """The estates of a broker with their lease rounds, for a beat sent now."""
        self._rounds = None  # one of them may be new
        return self._propose((broker,), now)[broker]

    def all_rounds(self, brokers: tuple[str, ...], now: int) -> dict[str, Rounds]:
        """The same for all brokers that there are, in one go over the estates."""
        if self._rounds is None or now >= self._rounds_until:
            self._rounds = self._propose(brokers, now)
        return self._rounds

    def _propose(self, brokers: tuple[str, ...], now: int) -> dict[str, Rounds]:
        """The rounds of these brokers' estates; those that have not begun are proposed by telling them.

        A round that was proposed a whole lease ago and never began is dead: the owner may have given it up.
        """
        found: dict[str, list[tuple[EstateId, int]]] = {broker: [] for broker in brokers}
        self._rounds_until = NEVER
        for name, record in self.estates.items():
            rounds = found.get(record.owner)
            if rounds is None:
                continue
            if record.lapsed:
                if record.proposed_at < 0:
                    record.proposed_at = now
                elif now - record.proposed_at >= self.lease:
                    self._mark("warden.round_never_began")
                    record.round += 1
                    record.proposed_at = now
                self._rounds_until = min(self._rounds_until, record.proposed_at + self.lease)
            rounds.append((name, record.round))
        return {broker: tuple(rounds) for broker, rounds in found.items()}

    def lapsed(self) -> tuple[EstateId, ...]:
        """Estates without a valid lease."""
        if self._lapsed is None:
            self._lapsed = tuple([name for name, record in self.estates.items() if record.lapsed])
        return self._lapsed

    def barrier(self, now: int, broker: str, estate: EstateId, rounds: dict[EstateId, int]) -> Refusal | None:
        """Why a claim for this estate may not be taken, if so."""
        record = self.estates.get(estate)
        if record is None or record.owner != broker:
            return Refusal.FENCED
        if record.lapsed or rounds.get(estate) != record.round or now >= record.until:
            return Refusal.STALE_ROUND
        return None

    def in_round(self, rounds: Rounds) -> tuple[EstateId, ...]:
        """The estates of which a claim names the present round: it renews their leases, and no others. With
        an older past we may be in a round that the owner has seen the end of."""
        there = self.estates
        return tuple([name for name, number in rounds if name in there and there[name].round == number])

    def renew(self, broker: str, now: int, echo: int, estates: tuple[EstateId, ...]) -> None:
        """The owner has answered the beat sent at ``echo``."""
        until = echo + self.lease
        if until <= now:
            return
        begun = False
        for name in estates:
            record = self.estates.get(name)
            if record is None or record.owner != broker or until <= record.until:
                continue
            if record.lapsed:
                if not 0 <= record.proposed_at <= echo:
                    continue  # it answers a beat of an earlier round
                record.lapsed, record.proposed_at = False, -1
                self._altered()
                begun = True
            elif record.until == self.due:
                self._first -= 1
            record.until = until
        if begun or not self._first:
            self._schedule()

    def lapse(self, now: int) -> list[EstateId]:
        """Estates whose lease has just run out; each begins a new round."""
        late = []
        self._altered()
        for name, record in self.estates.items():
            if not record.lapsed and now >= record.until:
                record.lapsed = True
                record.round += 1
                late.append(name)
                self._mark("warden.estate_lapsed")
        self._schedule()
        return late

    def register(self, broker: str, message: Register) -> Estate:
        """The owner names its heir."""
        record = self.estates.get(message.estate)
        if record is None:
            refusal = self._objection(message.estate)
            if refusal is not None:
                return self._refuse(message.estate, message.term, refusal)
            record = self._found(message.estate, TenureRecord(broker, broker, message.heir, message.term))
        mine = record.owner in ("", broker)
        if not mine and message.sure and message.term > record.term:
            # After a takeover that others agreed to: its bidder did not know us, and nobody used us then.
            mine = record.former in ("", broker) or adoption_of(message.term) > adoption_of(record.term)
        if mine and message.term >= record.term:
            record.owner = record.former = broker
            record.term, record.heir = message.term, message.heir
            self._altered()
        return Estate(message.estate, record.term, record.owner, mine)

    def _found(self, estate: EstateId, record: TenureRecord) -> TenureRecord:
        self.estates[estate] = record
        self._altered()
        return record

    def _altered(self) -> None:
        """An estate has come, gone, lapsed, begun a round or got another owner."""
        self._lapsed = self._rounds = None

    def adopt(self, broker: str, message: Adopt) -> Estate:
        """An heir takes over, unless the owner has named another one since."""
        record = self.estates.get(message.estate)
        if record is None:
            refusal = self._objection(message.estate)
            if refusal is not None:
                return self._refuse(message.estate, message.term, refusal, message.bid)
            record = self._found(message.estate, TenureRecord("", "", broker, message.term))
        if adoption_of(message.term) > adoption_of(record.term):
            record.owner = record.former = message.owner  # it changed hands before anybody used us
        heard = record.term == message.term and record.heir == broker
        named = heard or record.term < message.term
        if record.owner != broker and (record.owner not in ("", message.owner) or not named):
            self._mark("warden.adoption_refused")
            return Estate(message.estate, record.term, record.owner, False, message.bid)
        if record.owner != broker:
            record.former, record.owner = record.owner, broker
            self._altered()
        record.term = message.term
        return Estate(message.estate, record.term, broker, True, message.bid)

    def give_back(self, broker: str, message: Return) -> Estate:
        """An heir gives an adoption up."""
        record = self.estates.get(message.estate)
        if record is not None and record.owner == broker and record.term == message.term:
            record.owner = record.former
            self._altered()
        owner = record.owner if record else ""
        return Estate(message.estate, message.term, owner, False)

    # --- the end of an estate ------------------------------------------------------------------------------

    def close(self, broker: str, message: Close, busy: bool) -> Closed:
        """The owner has nothing left of an estate: forget it, unless something of it is left here
        (``busy``)."""
        record = self.estates.get(message.estate)
        if record is not None:
            is_owner = record.owner == broker or adoption_of(message.term) > adoption_of(record.term)
            if not is_owner or busy:
                return Closed(message.estate, message.term, False)
            del self.estates[message.estate]
            self._altered()
            self._schedule()
            self._mark("warden.closed_estate")
        if not self.is_closed(message.estate):
            self._fence(message.estate)
        return Closed(message.estate, message.term, True)

    def is_closed(self, estate: EstateId) -> bool:
        """Whether an estate was closed, and never comes back."""
        founder, generation = _origin(estate)
        ranges = self.closed.get(founder, ())
        at = bisect_right(ranges, (generation, CLOSED_TERM)) - 1
        return at >= 0 and generation <= ranges[at][1]

    def _fence(self, estate: EstateId) -> None:
        """Note a generation as closed: join it to the ranges beside it."""
        founder, generation = _origin(estate)
        ranges = self.closed.setdefault(founder, [])
        at = bisect_right(ranges, (generation, CLOSED_TERM))
        first = last = generation
        if at < len(ranges) and ranges[at][0] == generation + 1:
            last = ranges.pop(at)[1]
        if at and ranges[at - 1][1] == generation - 1:
            at -= 1
            first = ranges.pop(at)[0]
        ranges.insert(at, (first, last))
        if len(ranges) > RANGES_MAX:
            ranges[:2] = [(ranges[0][0], ranges[1][1])]

    def _objection(self, estate: EstateId) -> Refusal | None:
        """Why an estate that is not known here may not become so."""
        if self.is_closed(estate):
            return Refusal.CLOSED
        founder, _ = _origin(estate)
        count = sum(_origin(name)[0] == founder for name in self.estates)
        return Refusal.BUSY if count >= ESTATES_PER_BROKER_MAX else None

    def _refuse(self, estate: EstateId, term: int, refusal: Refusal, bid: int = 0) -> Estate:
        self._mark(f"warden.estate_{refusal}")
        if refusal is Refusal.CLOSED:
            term = CLOSED_TERM
        return Estate(estate, term, "", False, bid, refusal=refusal)

    def _schedule(self) -> None:
        due, first = NEVER, 0
        for record in self.estates.values():
            if record.until <= due and not record.lapsed:
                first = first + 1 if record.until == due else 1
                due = record.until
        self.due, self._first = due, first

    def restore(
        self, estates: dict[EstateId, TenureRecord], closed: dict[str, list[tuple[int, int]]]
    ) -> None:
        """Take dumped records."""
        self.estates, self.closed = estates, closed
        self._altered()
        self._schedule()

    def check(self) -> None:
        """What is remembered of the records is what they say."""
        live = [record.until for record in self.estates.values() if not record.lapsed]
        assert self.due == min(live, default=NEVER)
        assert self._first == live.count(self.due)
        lapsed = tuple([name for name, record in self.estates.items() if record.lapsed])
        assert self._lapsed in (None, lapsed)
        for broker, rounds in (self._rounds or {}).items():
            own = [(name, record.round) for name, record in self.estates.items() if record.owner == broker]
            assert rounds == tuple(own), f"{broker}: {rounds}, and not {own}"


def _origin(estate: EstateId) -> tuple[str, int]:
    """Who founded an estate, and as which of its own."""
    founder, _, generation = estate.rpartition("#")
    return founder, int(generation) if generation.isdecimal() else 0
