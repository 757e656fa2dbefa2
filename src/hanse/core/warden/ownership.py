"""Whose jobs run here: shards, their owners and standbys, and the lease under which their attempts may run.

An *shard* is the set of jobs a broker has accepted. Exactly one broker owns it at a time, as far as any
one warden is concerned; its standby may take it over only if *every* warden agrees, so two brokers never act
for one shard. A warden holds one lease per shard, renewed by its owner's replies to beats and counted
from when the beat was sent. When it lapses a new *round* begins, and claims of the old round are refused
for ever.

An adopted shard of which nothing is left is *closed* by its owner: it is forgotten here, and its generation
is fenced for ever. Generations are kept as ranges, so a broker that comes and goes a thousand times takes one
line.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

import msgspec

from hanse.core.broker.failover.terms import takeover_count
from hanse.core.config import WardenConfig
from hanse.core.messaging.link import NEVER
from hanse.model.messages import (
    AbortTakeover,
    OwnershipReply,
    RefusalReason,
    RegisterStandby,
    RequestTakeover,
    ShardId,
)
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply

SHARDS_PER_BROKER_MAX: Final = 1_024
"""Open shards founded by one broker; further ones are refused as busy until some are closed. A broker founds
one when its last one was adopted, so only one that was adopted from a thousand times, by peers that have not
finished its jobs, comes near."""
RANGES_MAX: Final = 1_024
"""Ranges of closed generations kept of one broker; beyond it the two oldest become one, with what is between
them. Open shards are looked up first, so that fences none of them."""
CLOSED_TERM: Final = 1 << 61
"""The term of a closed shard: above all that an owner or a standby can name."""


Rounds = tuple[tuple[ShardId, int], ...]
"""Shards and the lease round of each."""


class ShardOwnership(
    msgspec.Struct, gc=False, rename={"former_owner": "former", "standby": "heir", "is_lapsed": "lapsed"}
):
    """One shard at one warden."""

    owner: str
    former_owner: str
    """Who owned it before an adoption (empty: nobody had said so yet); the owner itself otherwise."""
    standby: str
    term: int
    round: int = 1
    until: int = 0
    is_lapsed: bool = True
    proposed_at: int = -1
    """When the present round was first told to the owner, if it has not begun yet."""


class Ownership:
    """All shards at one warden."""

    def __init__(self, config: WardenConfig, mark: Callable[[str], None]) -> None:
        self.lease = config.timings.cluster_lease
        self.shards: dict[ShardId, ShardOwnership] = {}
        self.closed_generations: dict[str, list[tuple[int, int]]] = {}
        """Broker -> generations of its shards that are closed for ever: first and last of each range, in
        order."""
        self.due = NEVER
        self._first = 0
        """How many leases run out then."""
        self._lapsed: tuple[ShardId, ...] | None = None
        """What ``find_lapsed`` said last, until something of that kind changes: every beat of a runner
        asks."""
        self._rounds: dict[str, Rounds] | None = None
        """What ``all_rounds`` said last, until something of that kind changes: every beat to brokers asks."""
        self._rounds_until = NEVER
        """When one of those rounds is dead, if it has not begun."""
        self._mark = mark

    def find_owner(self, shard: ShardId) -> str:
        """Whom to tell about a shard's attempts; empty if nobody has claimed it."""
        record = self.shards.get(shard)
        return record.owner if record else ""

    def rounds(self, broker: str, now: int) -> Rounds:
        """The shards of a broker with their lease rounds, for a beat sent now."""
        self._rounds = None  # one of them may be new
        return self._propose((broker,), now)[broker]

    def all_rounds(self, brokers: tuple[str, ...], now: int) -> dict[str, Rounds]:
        """The same for all brokers that there are, in one go over the shards."""
        if self._rounds is None or now >= self._rounds_until:
            self._rounds = self._propose(brokers, now)
        return self._rounds

    def _propose(self, brokers: tuple[str, ...], now: int) -> dict[str, Rounds]:
        """The rounds of these brokers' shards; those that have not begun are proposed by telling them.

        A round that was proposed a whole lease ago and never began is dead: the owner may have given it up.
        """
        found: dict[str, list[tuple[ShardId, int]]] = {broker: [] for broker in brokers}
        self._rounds_until = NEVER
        for name, record in self.shards.items():
            rounds = found.get(record.owner)
            if rounds is None:
                continue
            if record.is_lapsed:
                if record.proposed_at < 0:
                    record.proposed_at = now
                elif now - record.proposed_at >= self.lease:
                    self._mark("warden.round_never_began")
                    record.round += 1
                    record.proposed_at = now
                self._rounds_until = min(self._rounds_until, record.proposed_at + self.lease)
            rounds.append((name, record.round))
        return {broker: tuple(rounds) for broker, rounds in found.items()}

    def find_lapsed(self) -> tuple[ShardId, ...]:
        """Shards without a valid lease."""
        if self._lapsed is None:
            self._lapsed = tuple([name for name, record in self.shards.items() if record.is_lapsed])
        return self._lapsed

    def find_refusal(
        self, now: int, broker: str, shard: ShardId, rounds: dict[ShardId, int]
    ) -> RefusalReason | None:
        """Why a claim for this shard may not be taken, if so."""
        record = self.shards.get(shard)
        if record is None or record.owner != broker:
            return RefusalReason.FENCED
        if record.is_lapsed or rounds.get(shard) != record.round or now >= record.until:
            return RefusalReason.STALE_ROUND
        return None

    def find_renewable(self, rounds: Rounds) -> tuple[ShardId, ...]:
        """The shards of which a claim names the present round: it renews their leases, and no others. With
        an older past we may be in a round that the owner has seen the end of."""
        there = self.shards
        return tuple([name for name, number in rounds if name in there and there[name].round == number])

    def renew(self, broker: str, now: int, echo: int, shards: tuple[ShardId, ...]) -> None:
        """The owner has answered the beat sent at ``echo``."""
        until = echo + self.lease
        if until <= now:
            return
        begun = False
        for name in shards:
            record = self.shards.get(name)
            if record is None or record.owner != broker or until <= record.until:
                continue
            if record.is_lapsed:
                if not 0 <= record.proposed_at <= echo:
                    continue  # it answers a beat of an earlier round
                record.is_lapsed, record.proposed_at = False, -1
                self._forget_rounds()
                begun = True
            elif record.until == self.due:
                self._first -= 1
            record.until = until
        if begun or not self._first:
            self._schedule()

    def expire_leases(self, now: int) -> list[ShardId]:
        """Shards whose lease has just run out; each begins a new round."""
        late = []
        self._forget_rounds()
        for name, record in self.shards.items():
            if not record.is_lapsed and now >= record.until:
                record.is_lapsed = True
                record.round += 1
                late.append(name)
                self._mark("warden.estate_lapsed")
        self._schedule()
        return late

    def on_register_standby(self, broker: str, message: RegisterStandby) -> OwnershipReply:
        """The owner names its standby."""
        record = self.shards.get(message.shard)
        if record is None:
            refusal = self._find_objection(message.shard)
            if refusal is not None:
                return self._refuse(message.shard, message.term, refusal)
            record = self._create_shard(
                message.shard, ShardOwnership(broker, broker, message.standby, message.term)
            )
        mine = record.owner in ("", broker)
        if not mine and message.is_accepted_elsewhere and message.term > record.term:
            # After a takeover that others agreed to: its bidder did not know us, and nobody used us then.
            mine = record.former_owner in ("", broker) or takeover_count(message.term) > takeover_count(
                record.term
            )
        if mine and message.term >= record.term:
            record.owner = record.former_owner = broker
            record.term, record.standby = message.term, message.standby
            self._forget_rounds()
        return OwnershipReply(message.shard, record.term, record.owner, mine)

    def _create_shard(self, shard: ShardId, record: ShardOwnership) -> ShardOwnership:
        self.shards[shard] = record
        self._forget_rounds()
        return record

    def _forget_rounds(self) -> None:
        """A shard has come, gone, lapsed, begun a round or got another owner."""
        self._lapsed = self._rounds = None

    def on_request_takeover(self, broker: str, message: RequestTakeover) -> OwnershipReply:
        """A standby takes over, unless the owner has named another one since."""
        record = self.shards.get(message.shard)
        if record is None:
            refusal = self._find_objection(message.shard)
            if refusal is not None:
                return self._refuse(message.shard, message.term, refusal, message.takeover_id)
            record = self._create_shard(message.shard, ShardOwnership("", "", broker, message.term))
        if takeover_count(message.term) > takeover_count(record.term):
            record.owner = record.former_owner = message.owner  # it changed hands before anybody used us
        heard = record.term == message.term and record.standby == broker
        named = heard or record.term < message.term
        if record.owner != broker and (record.owner not in ("", message.owner) or not named):
            self._mark("warden.adoption_refused")
            return OwnershipReply(message.shard, record.term, record.owner, False, message.takeover_id)
        if record.owner != broker:
            record.former_owner, record.owner = record.owner, broker
            self._forget_rounds()
        record.term = message.term
        return OwnershipReply(message.shard, record.term, broker, True, message.takeover_id)

    def on_abort_takeover(self, broker: str, message: AbortTakeover) -> OwnershipReply:
        """A standby gives an adoption up."""
        record = self.shards.get(message.shard)
        if record is not None and record.owner == broker and record.term == message.term:
            record.owner = record.former_owner
            self._forget_rounds()
        owner = record.owner if record else ""
        return OwnershipReply(message.shard, message.term, owner, False)

    # --- the end of a shard ------------------------------------------------------------------------------

    def on_close_shard(self, broker: str, message: CloseShard, busy: bool) -> CloseShardReply:
        """The owner has nothing left of a shard: forget it, unless something of it is left here
        (``busy``)."""
        record = self.shards.get(message.shard)
        if record is not None:
            is_owner = record.owner == broker or takeover_count(message.term) > takeover_count(record.term)
            if not is_owner or busy:
                return CloseShardReply(message.shard, message.term, False)
            del self.shards[message.shard]
            self._forget_rounds()
            self._schedule()
            self._mark("warden.closed_estate")
        if not self.is_closed(message.shard):
            self._fence(message.shard)
        return CloseShardReply(message.shard, message.term, True)

    def is_closed(self, shard: ShardId) -> bool:
        """Whether a shard was closed, and never comes back."""
        founder, generation = _founder_of(shard)
        ranges = self.closed_generations.get(founder, ())
        at = bisect_right(ranges, (generation, CLOSED_TERM)) - 1
        return at >= 0 and generation <= ranges[at][1]

    def _fence(self, shard: ShardId) -> None:
        """Note a generation as closed: join it to the ranges beside it."""
        founder, generation = _founder_of(shard)
        ranges = self.closed_generations.setdefault(founder, [])
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

    def _find_objection(self, shard: ShardId) -> RefusalReason | None:
        """Why a shard that is not known here may not become so."""
        if self.is_closed(shard):
            return RefusalReason.CLOSED
        founder, _ = _founder_of(shard)
        count = sum(_founder_of(name)[0] == founder for name in self.shards)
        return RefusalReason.BUSY if count >= SHARDS_PER_BROKER_MAX else None

    def _refuse(
        self, shard: ShardId, term: int, refusal: RefusalReason, takeover_id: int = 0
    ) -> OwnershipReply:
        self._mark(f"warden.estate_{refusal}")
        if refusal is RefusalReason.CLOSED:
            term = CLOSED_TERM
        return OwnershipReply(shard, term, "", False, takeover_id, refusal=refusal)

    def _schedule(self) -> None:
        due, first = NEVER, 0
        for record in self.shards.values():
            if record.until <= due and not record.is_lapsed:
                first = first + 1 if record.until == due else 1
                due = record.until
        self.due, self._first = due, first

    def restore(
        self, shards: dict[ShardId, ShardOwnership], closed: dict[str, list[tuple[int, int]]]
    ) -> None:
        """Take dumped records."""
        self.shards, self.closed_generations = shards, closed
        self._forget_rounds()
        self._schedule()

    def check(self) -> None:
        """What is remembered of the records is what they say."""
        live = [record.until for record in self.shards.values() if not record.is_lapsed]
        assert self.due == min(live, default=NEVER)
        assert self._first == live.count(self.due)
        lapsed = tuple([name for name, record in self.shards.items() if record.is_lapsed])
        assert self._lapsed in (None, lapsed)
        for broker, rounds in (self._rounds or {}).items():
            own = [(name, record.round) for name, record in self.shards.items() if record.owner == broker]
            assert rounds == tuple(own), f"{broker}: {rounds}, and not {own}"


def _founder_of(shard: ShardId) -> tuple[str, int]:
    """Who founded a shard, and as which of its own."""
    founder, _, generation = shard.rpartition("#")
    return founder, int(generation) if generation.isdecimal() else 0
