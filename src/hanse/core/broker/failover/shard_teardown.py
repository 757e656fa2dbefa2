"""Teardown of shards: the end of a shard that was taken over, so that takeovers leave nothing behind.

The owner closes a taken shard when all its jobs have ended, all ends are published and acknowledged, and
every former owner has released it. It also closes a shard of its own that new jobs no longer join, because a
takeover seemed complete and then was not. Each warden forgets the shard and fences its generation permanently
(``core.warden.ownership``), so that nothing late can bring it back: a registration, a claim, or the takeover
request of a standby with an old copy. An owner that loses or closes a shard has the peers drop the copies
that it has sent.

Releases are passed along the chain of owners: a broker that receives ``OwnershipTransferred`` replies
``OwnershipReleased``, but only when the owner before it has released the shard in the same way. A dead former
owner delays the teardown of the shards that were taken from it, and of no others. It creates no shard while
it is dead, so there are few.
"""

from collections.abc import Callable
from typing import Any, Final

from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.abandoned_takeover import is_owned_by_retired
from hanse.core.broker.failover.owned_shards import OwnedShard, PendingRelease
from hanse.core.broker.failover.terms import TERMS_BITS, takeover_count
from hanse.model.messages import OwnershipTransferred, ShardId
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased

TRANSFERRED_MAX: Final = 1_024
"""Shards taken over by peers that are remembered, the newest ones, to redirect requests to the right
broker."""
ROUNDS_SPARE: Final = 64
"""Lease rounds kept per cluster beyond those of our own shards: late heartbeats may name former shards."""


class ShardTeardown:
    """Teardown at one broker of the shards that it took over, and release of those that were taken from
    it."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.shards = context.owned_shards
        self.state = context.owned_shards.state
        self.has_grown = True
        """True if a cluster may have more lease rounds than are kept: rounds were added, or a shard was
        removed. The code that adds rounds sets it."""

    def handlers(self) -> dict[type, Callable[[str, Any], None]]:
        """Return the handlers by message type."""
        return {
            CloseShardReply: self.on_close_shard_reply,
            OwnershipReleased: self.on_ownership_released,
        }

    # --- the owner -----------------------------------------------------------------------------------------

    def review(self) -> None:
        """Ask the wardens, with every heartbeat, to close finished shards."""
        base = self.shards.base_shard
        for shard, owned_shard in list(self.state.owned.items()):
            former = owned_shard.former_owner not in self.context.config.retired and owned_shard.former_owner
            if shard != base and not former and owned_shard.is_quiet():
                if owned_shard.closed_at and self._is_closed(owned_shard):
                    self._finish(shard)  # the last missing cluster has retired
                else:
                    self._ask_to_close(shard, owned_shard)

    def boot(self) -> None:
        """Stop waiting for retired members, after a start with perhaps newer settings."""
        state, retired = self.state, self.context.config.retired
        for owned_shard in state.owned.values():
            if owned_shard.former_owner in retired:
                owned_shard.former_owner = ""
        for pending in list(state.pending_releases):
            if pending.former_owner in retired or pending.new_owner in retired:
                state.pending_releases.remove(pending)
                self._send_release(pending.shard, pending.new_owner, pending.new_owner_term)

    def count_unreplicated(self) -> int:
        """Count what would be lost with this broker: what is exposed, and messages that others have not
        received, such as a takeover or an acknowledgement."""
        return self.count_exposed() + sum(len(link.unacked) for link in self.context.links.links.values())

    def count_exposed(self) -> int:
        """Count the jobs without a complete copy elsewhere, and what others were not sent yet. While wardens
        have a retired broker for the owner of a shard, they refuse its standby: only we may take it back."""
        context, owned = self.context, self.state.owned
        exposed = [
            name
            for name, owned_shard in owned.items()
            if not owned_shard.standby
            or owned_shard.copy_complete_message
            or is_owned_by_retired(context.config, owned_shard)
        ]
        jobs = sum(record.shard in exposed for record in context.jobs.values()) if exposed else 0
        untold = sum(owned_shard.count_unsent() for owned_shard in owned.values()) + len(
            context.end_acks.state.entries
        )
        return jobs + untold

    def trim(self) -> None:
        """Drop lease rounds of foreign shards where there are more than are kept."""
        self.has_grown = False
        owned = self.state.owned
        for rounds in self._find_excess():
            for shard in [name for name in rounds if name not in owned]:
                del rounds[shard]

    def _find_excess(self) -> list[dict[ShardId, int]]:
        """Return the tables of lease rounds, one cluster each, that are larger than allowed."""
        most = ROUNDS_SPARE + len(self.state.owned)
        view_states = [view.state for view in self.context.views]
        return [
            rounds
            for view_state in view_states
            for rounds in (view_state.rounds, view_state.least_round)
            if len(rounds) > most
        ]

    def check(self) -> None:
        """Assert that every excess is known."""
        assert self.has_grown or not self._find_excess(), "there are more lease rounds than are kept"

    def _ask_to_close(self, shard: ShardId, owned_shard: OwnedShard) -> None:
        context = self.context
        for cluster in context.config.active_clusters:
            if cluster not in owned_shard.closed_at and not context.links.link(cluster).is_crowded:
                owned_shard.closed_at[cluster] = False
                context.links.send(context.effects, context.now, cluster, CloseShard(shard, owned_shard.term))

    def on_close_shard_reply(self, cluster: str, message: CloseShardReply) -> None:
        """Handle a warden's reply: it has closed the shard, or must be asked again with the next
        heartbeat."""
        owned_shard = self.state.owned.get(message.shard)
        if (
            owned_shard is None
            or cluster not in owned_shard.closed_at
            or takeover_count(owned_shard.term) != takeover_count(message.term)
        ):
            return
        if not message.done:
            self.context.mark("broker.close_put_off")
            del owned_shard.closed_at[cluster]
            return
        owned_shard.closed_at[cluster] = True
        if self._is_closed(owned_shard):
            self._finish(message.shard)

    def _is_closed(self, owned_shard: OwnedShard) -> bool:
        """True if every warden has closed a shard."""
        return all(owned_shard.closed_at.get(name, False) for name in self.context.config.active_clusters)

    def _finish(self, shard: ShardId) -> None:
        context = self.context
        context.mark("broker.closed_estate")
        self.shards.remove(shard)
        self.forget_shard(shard)

    def forget_shard(self, shard: ShardId) -> None:
        """Drop the lease rounds of a former shard, and have peers drop the copies that we sent."""
        context = self.context
        self.has_grown = True
        for view in context.views:
            view.state.rounds.pop(shard, None)
            view.state.least_round.pop(shard, None)
        for peer in context.gossip.peers:
            if not context.links.link(peer).is_crowded:  # else it drops its copies after a refused takeover
                context.links.send(context.effects, context.now, peer, DropReplicas(shard))

    # --- former owners -------------------------------------------------------------------------------------

    def on_ownership_transferred(
        self, new_owner: str, message: OwnershipTransferred, owned_shard: OwnedShard | None
    ) -> None:
        """Release a shard that was taken from us: now, or when all owners before us have released it."""
        state = self.state
        state.transferred.pop(message.shard, None)
        state.transferred[message.shard] = new_owner
        if len(state.transferred) > TRANSFERRED_MAX:
            del state.transferred[next(iter(state.transferred))]
        self.forget_shard(message.shard)
        if (
            owned_shard is not None
            and owned_shard.former_owner
            and owned_shard.former_owner not in self.context.config.retired
        ):
            self.context.mark("broker.owes_word")
            state.pending_releases.append(
                PendingRelease(
                    message.shard,
                    owned_shard.takeover_number << TERMS_BITS,
                    owned_shard.former_owner,
                    new_owner,
                    message.term,
                )
            )
        else:
            self._send_release(message.shard, new_owner, message.term)

    def on_ownership_released(self, former_owner: str, message: OwnershipReleased) -> None:
        """Note that the former owner of a shard, and all before it, have released the shard."""
        state = self.state
        owned_shard = state.owned.get(message.shard)
        number = takeover_count(message.term)
        if (
            owned_shard is not None
            and owned_shard.former_owner == former_owner
            and owned_shard.takeover_number == number
        ):
            owned_shard.former_owner = ""
        due_releases = [
            pending
            for pending in state.pending_releases
            if (pending.shard, pending.former_owner, takeover_count(pending.term))
            == (message.shard, former_owner, number)
        ]
        for pending in due_releases:
            state.pending_releases.remove(pending)
            self._send_release(pending.shard, pending.new_owner, pending.new_owner_term)

    def _send_release(self, shard: ShardId, new_owner: str, term: int) -> None:
        self.context.links.send(
            self.context.effects, self.context.now, new_owner, OwnershipReleased(shard, term)
        )
