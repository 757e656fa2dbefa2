"""Permissions of peers: the address book of a member, and the table of roles and messages.

A *name* is the name of a machine in messages; an *identity* is proved by a certificate. Mostly each name has
an identity of its own. A runner inside its warden's daemon has none: it has the warden's.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from hanse.model import messages as m
from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply
from hanse.model.messages.history_check import HistoryQuery, HistoryReply
from hanse.model.messages.shard_teardown import CloseShard, CloseShardReply, DropReplicas, OwnershipReleased
from hanse.security.identity import Identity, Role

_BROKER, _WARDEN, _RUNNER = Role.BROKER, Role.WARDEN, Role.RUNNER

ALLOWED_MESSAGES: Final[dict[tuple[Role, Role], frozenset[type]]] = {
    (_BROKER, _WARDEN): frozenset(
        (
            *(
                m.Claim,
                m.Demand,
                m.CancelAttempts,
                m.AckEnds,
                m.RegisterStandby,
                m.RequestTakeover,
                m.AbortTakeover,
                CloseShard,
            ),
            *(m.HeartbeatReply, m.RequestSnapshot, m.Ack, HistoryQuery, HistoryReply),
        )
    ),
    (_WARDEN, _BROKER): frozenset(
        (
            *(m.ClaimReply, m.TaskUpdates, m.OwnershipReply, CloseShardReply),
            *(m.WardenHeartbeat, m.ClusterSnapshot, m.ClusterDelta, m.Ack, HistoryQuery, HistoryReply),
        )
    ),
    (_BROKER, _BROKER): frozenset(
        (
            *(
                m.ReplicateJobs,
                m.ReplicaUpdate,
                m.OwnershipTransferred,
                m.WatchJobs,
                m.JobEnded,
                OwnershipReleased,
                DropReplicas,
                DuplicateQuery,
                DuplicateReply,
            ),
            *(m.Gossip, DurationStatsUpdate, m.Ack, HistoryQuery, HistoryReply),
        )
    ),
    (_WARDEN, _RUNNER): frozenset((m.RunnerOrders, m.RunnerLease, m.Rejoin, m.Ack, HistoryQuery)),
    (_RUNNER, _WARDEN): frozenset((m.RunnerReport, m.OpenSession, m.RunnerHeartbeat, m.Ack, HistoryReply)),
}
"""Sender's and receiver's role -> allowed messages. Other pairs may send nothing to each other."""
_NOTHING: Final[frozenset[type]] = frozenset()


class Peer(msgspec.Struct, frozen=True):
    """Entry of the address book."""

    identity: Identity
    """Identity that sends for this name, and that is dialled to reach it."""
    host: str
    port: int
    role: Role | None = None
    """Role of the name, if not that of its identity: a runner inside its warden's daemon."""

    @property
    def effective_role(self) -> Role:
        """Role of the name."""
        return self.role or self.identity.role


class AddressBook:
    """Names that one member knows. It is immutable: another book replaces it."""

    def __init__(self, own: Identity, peers: Mapping[str, Peer]) -> None:
        self.own = own
        self.peers = {own.name: Peer(own, "", 0), **peers}
        self.addresses: dict[Identity, tuple[str, int]] = {}
        """Address of each identity; of several names of one identity, the first counts."""
        for peer in self.peers.values():
            self.addresses.setdefault(peer.identity, (peer.host, peer.port))
        self._allowed: dict[tuple[Identity, str, str], frozenset[type] | str] = {}

    def allowed_messages(self, sender: Identity, source: str, target: str) -> frozenset[type] | str:
        """Return the types that ``sender`` may send in the name ``source`` to ``target``, or why none.

        Results are cached: there are as many as pairs of names, because refused senders are disconnected.
        """
        key = (sender, source, target)
        known = self._allowed.get(key)
        if known is None:
            known = self._find_allowed(sender, source, target)
            if not isinstance(known, str):
                self._allowed[key] = known
        return known

    def _find_allowed(self, sender: Identity, source: str, target: str) -> frozenset[type] | str:
        speaker, receiver = self.peers.get(source), self.peers.get(target)
        if speaker is None or speaker.identity != sender:
            return "source"
        if receiver is None or receiver.identity != self.own:
            return "target"
        return ALLOWED_MESSAGES.get((speaker.effective_role, receiver.effective_role), _NOTHING)
