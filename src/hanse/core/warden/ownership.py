"""Ownership of shards at one warden: owner, standby, and the lease under which a shard's attempts may run.

A shard is the set of jobs a broker has accepted. At any one warden it has exactly one owner. A standby may
take it over only if *every* warden agrees, so two brokers never act for one shard. A warden holds one lease
per shard, which its owner renews with replies to heartbeats; the lease counts from when the heartbeat was
sent. When it lapses a new *round* begins, and claims of the old round are refused permanently.

The owner *closes* a taken shard of which nothing is left: the warden forgets the shard and fences its
generation permanently. Closed generations are kept as ranges, so a broker that comes and goes a thousand
times takes one line.
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
"""Open shards created by one broker; further ones are refused as busy until some are closed. A broker creates
one when its last one was taken over, so only a broker with a thousand takeovers whose jobs have not ended
comes near."""
RANGES_MAX: Final = 1_024
"""Ranges of closed generations kept per broker; above it the two oldest become one, with the gap between
them. Open shards are looked up first, so that fences none of them."""
CLOSED_TERM: Final = 1 << 61
"""Term of a closed shard: above all that an owner or a standby can name."""


Rounds = tuple[tuple[ShardId, int], ...]
"""Shards and the lease round of each."""


class ShardOwnership(
    msgspec.Struct, gc=False, rename={"former_owner": "former", "standby": "heir", "is_lapsed": "lapsed"}
):
    """Ownership of one shard at one warden."""

    owner: str
    former_owner: str
    """Owner before a takeover (empty: no owner has registered yet); otherwise the owner itself."""
    standby: str
    term: int
    round: int = 1
    until: int = 0
    is_lapsed: bool = True
    proposed_at: int = -1
    """Time at which the present round was first sent to the owner, if it has not begun; else -1."""


class Ownership:
    """Ownership of all shards at one warden."""

    def __init__(self, config: WardenConfig, mark: Callable[[str], None]) -> None:
        self.lease = config.timings.cluster_lease
        self._retired = config.retired
        self.shards: dict[ShardId, ShardOwnership] = {}
        self.closed_generations: dict[str, list[tuple[int, int]]] = {}
        """Broker -> generations of its closed shards: first and last of each range, in order."""
        self.due = NEVER
        self._due_count = 0
        """Number of leases that expire at ``due``."""
        self._lapsed: tuple[ShardId, ...] | None = None
        """Cached result of ``find_lapsed``: every heartbeat of a runner needs it."""
        self._rounds: dict[str, Rounds] | None = None
        """Cached result of ``all_rounds``: every heartbeat to brokers needs it."""
        self._rounds_until = NEVER
        """Time at which a round in the cache is dead if it has not begun."""
        self._mark = mark

    def find_owner(self, shard: ShardId) -> str:
        """Return the owner to be told about a shard's attempts; empty if there is none."""
        record = self.shards.get(shard)
        return record.owner if record else ""

    def rounds(self, broker: str, now: int) -> Rounds:
        """Return a broker's shards with their lease rounds, for a heartbeat sent now."""
        self._rounds = None  # one of them may be new
        return self._propose((broker,), now)[broker]

    def all_rounds(self, brokers: tuple[str, ...], now: int) -> dict[str, Rounds]:
        """Return the rounds of all brokers, in one pass over the shards."""
        if self._rounds is None or now >= self._rounds_until:
            self._rounds = self._propose(brokers, now)
        return self._rounds

    def _propose(self, brokers: tuple[str, ...], now: int) -> dict[str, Rounds]:
        """Return the rounds of these brokers' shards; sending a round that has not begun proposes it.

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
        """Return the shards without a valid lease."""
        if self._lapsed is None:
            self._lapsed = tuple([name for name, record in self.shards.items() if record.is_lapsed])
        return self._lapsed

    def find_refusal(
        self, now: int, broker: str, shard: ShardId, rounds: dict[ShardId, int]
    ) -> RefusalReason | None:
        """Return why a claim for this shard must be refused; None if it may be accepted."""
        record = self.shards.get(shard)
        if record is None or record.owner != broker:
            return RefusalReason.FENCED
        if record.is_lapsed or rounds.get(shard) != record.round or now >= record.until:
            return RefusalReason.STALE_ROUND
        return None

    def find_renewable(self, rounds: Rounds) -> tuple[ShardId, ...]:
        """Return the shards of which a claim names the present round: it renews their leases, and no others.
        A warden with an older state may be in a round that the owner knows to be over."""
        there = self.shards
        return tuple([name for name, number in rounds if name in there and there[name].round == number])

    def renew(self, broker: str, now: int, echo: int, shards: tuple[ShardId, ...]) -> None:
        """Renew leases after the owner has answered the heartbeat sent at ``echo``."""
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
                    continue  # a reply to a heartbeat of an earlier round
                record.is_lapsed, record.proposed_at = False, -1
                self._forget_rounds()
                begun = True
            elif record.until == self.due:
                self._due_count -= 1
            record.until = until
        if begun or not self._due_count:
            self._schedule()

    def expire_leases(self, now: int) -> list[ShardId]:
        """Return the shards with a lease that has just expired; each begins a new round."""
        lapsed = []
        self._forget_rounds()
        for name, record in self.shards.items():
            if not record.is_lapsed and now >= record.until:
                record.is_lapsed = True
                record.round += 1
                lapsed.append(name)
                self._mark("warden.estate_lapsed")
        self._schedule()
        return lapsed

    def on_register_standby(self, broker: str, message: RegisterStandby) -> OwnershipReply:
        """Register the standby that the owner names."""
        record = self.shards.get(message.shard)
        if record is None:
            refusal = self._find_objection(message.shard)
            if refusal is not None:
                return self._refuse(message.shard, message.term, refusal)
            record = self._create_shard(
                message.shard, ShardOwnership(broker, broker, message.standby, message.term)
            )
        is_accepted = record.owner in ("", broker)
        if not is_accepted and message.is_accepted_elsewhere and message.term > record.term:
            # A takeover elsewhere is complete; it did not ask us, as no broker used us then.
            is_accepted = record.former_owner in ("", broker) or takeover_count(
                message.term
            ) > takeover_count(record.term)
        is_abandoned = self._is_abandoned(record, broker, message.term)
        if is_abandoned and takeover_count(message.term) > takeover_count(record.term):
            self._mark("warden.abandoned_takeover")  # every warden has said that it is abandoned
            is_accepted = True
        if is_accepted and message.term >= record.term:
            record.owner = record.former_owner = broker
            record.term, record.standby = message.term, message.standby
            self._forget_rounds()
        return OwnershipReply(
            message.shard,
            record.term,
            record.owner,
            is_accepted,
            is_abandoned=is_abandoned and not is_accepted,
        )

    def _is_abandoned(self, record: ShardOwnership, broker: str, term: int) -> bool:
        """True if a retired broker has the shard of this former owner only because its takeover was agreed
        to. It never registered here, so it never acted here; and it is not listened to any more. Where nobody
        had registered before it either, the number of takeovers tells who the former owner is."""
        is_former_owner = record.former_owner == broker or (
            not record.former_owner and takeover_count(term) >= takeover_count(record.term)
        )
        return is_former_owner and record.owner != broker and record.owner in self._retired

    def _create_shard(self, shard: ShardId, record: ShardOwnership) -> ShardOwnership:
        self.shards[shard] = record
        self._forget_rounds()
        return record

    def _forget_rounds(self) -> None:
        """Clear caches after a shard has come, gone, lapsed, begun a round or changed its owner."""
        self._lapsed = self._rounds = None

    def on_request_takeover(self, broker: str, message: RequestTakeover) -> OwnershipReply:
        """Agree to a takeover, unless the owner has named another standby since."""
        record = self.shards.get(message.shard)
        if record is None:
            refusal = self._find_objection(message.shard)
            if refusal is not None:
                return self._refuse(message.shard, message.term, refusal, message.takeover_id)
            record = self._create_shard(message.shard, ShardOwnership("", "", broker, message.term))
        if takeover_count(message.term) > takeover_count(record.term):
            record.owner = record.former_owner = message.owner  # a takeover before any broker used us
        is_current_standby = record.term == message.term and record.standby == broker
        is_standby = is_current_standby or record.term < message.term
        if record.owner != broker and (record.owner not in ("", message.owner) or not is_standby):
            self._mark("warden.adoption_refused")
            return OwnershipReply(message.shard, record.term, record.owner, False, message.takeover_id)
        if record.owner != broker:
            record.former_owner, record.owner = record.owner, broker
            self._forget_rounds()
        record.term, record.standby = message.term, broker  # it may have to ask again, after an abort
        return OwnershipReply(message.shard, record.term, broker, True, message.takeover_id)

    def on_abort_takeover(self, broker: str, message: AbortTakeover) -> OwnershipReply:
        """Return a shard to its former owner after an aborted takeover."""
        record = self.shards.get(message.shard)
        if record is not None and record.owner == broker and record.term == message.term:
            record.owner = record.former_owner
            self._forget_rounds()
        owner = record.owner if record else ""
        return OwnershipReply(message.shard, message.term, owner, False)

    # --- the end of a shard ------------------------------------------------------------------------------

    def on_close_shard(self, broker: str, message: CloseShard, busy: bool) -> CloseShardReply:
        """Forget and fence a shard that its owner closes, unless something of it is left here (``busy``)."""
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
        """True if a shard was closed; a closed shard never returns."""
        founder, generation = _founder_of(shard)
        ranges = self.closed_generations.get(founder, ())
        at = bisect_right(ranges, (generation, CLOSED_TERM)) - 1
        return at >= 0 and generation <= ranges[at][1]

    def _fence(self, shard: ShardId) -> None:
        """Note a generation as closed, and join it to the ranges beside it."""
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
        """Return why an unknown shard must not be created here; None if it may."""
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
        due, due_count = NEVER, 0
        for record in self.shards.values():
            if record.until <= due and not record.is_lapsed:
                due_count = due_count + 1 if record.until == due else 1
                due = record.until
        self.due, self._due_count = due, due_count

    def restore(
        self, shards: dict[ShardId, ShardOwnership], closed: dict[str, list[tuple[int, int]]]
    ) -> None:
        """Restore dumped records."""
        self.shards, self.closed_generations = shards, closed
        self._forget_rounds()
        self._schedule()

    def check(self) -> None:
        """Assert that caches match the records."""
        live = [record.until for record in self.shards.values() if not record.is_lapsed]
        assert self.due == min(live, default=NEVER)
        assert self._due_count == live.count(self.due)
        lapsed = tuple([name for name, record in self.shards.items() if record.is_lapsed])
        assert self._lapsed in (None, lapsed)
        for broker, rounds in (self._rounds or {}).items():
            own = [(name, record.round) for name, record in self.shards.items() if record.owner == broker]
            assert rounds == tuple(own), f"{broker}: {rounds}, and not {own}"


def _founder_of(shard: ShardId) -> tuple[str, int]:
    """Return the broker that created a shard, and the generation."""
    founder, _, generation = shard.rpartition("#")
    return founder, int(generation) if generation.isdecimal() else 0
