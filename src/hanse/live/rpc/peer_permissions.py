"""Who may say what to whom: the address book of a member, and the table of roles and messages.

A *name* is what machines call each other; an *identity* is what a certificate proves. Mostly each name has an
identity of its own. A runner inside its warden's daemon has not: the book says that the warden's identity
speaks for it.
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

MAY_SAY: Final[dict[tuple[Role, Role], frozenset[type]]] = {
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
"""Sender's and receiver's role -> what may be said. Pairs that are not here say nothing to each other."""
_NOTHING: Final[frozenset[type]] = frozenset()


class Peer(msgspec.Struct, frozen=True):
    """One name of the book."""

    identity: Identity
    """Who speaks for this name, and who is dialled to reach it."""
    host: str
    port: int
    role: Role | None = None
    """What the name is, if not what its identity is: a runner inside its warden's daemon."""

    @property
    def plays(self) -> Role:
        """The role of the name."""
        return self.role or self.identity.role


class Book:
    """The names that one member knows. It never changes: another book takes its place."""

    def __init__(self, own: Identity, peers: Mapping[str, Peer]) -> None:
        self.own = own
        self.peers = {own.name: Peer(own, "", 0), **peers}
        self.addresses: dict[Identity, tuple[str, int]] = {}
        """Where to dial each identity; of several names of one, the first counts."""
        for peer in self.peers.values():
            self.addresses.setdefault(peer.identity, (peer.host, peer.port))
        self._said: dict[tuple[Identity, str, str], frozenset[type] | str] = {}

    def may_say(self, sender: Identity, source: str, target: str) -> frozenset[type] | str:
        """What ``sender`` may say in the name ``source`` to ``target``; or the reason why nothing.

        The answers are kept: there are as many as pairs of names, and refused senders are cut off.
        """
        key = (sender, source, target)
        known = self._said.get(key)
        if known is None:
            known = self._judge(sender, source, target)
            if not isinstance(known, str):
                self._said[key] = known
        return known

    def _judge(self, sender: Identity, source: str, target: str) -> frozenset[type] | str:
        speaks, hears = self.peers.get(source), self.peers.get(target)
        if speaks is None or speaks.identity != sender:
            return "source"
        if hears is None or hears.identity != self.own:
            return "target"
        return MAY_SAY.get((speaks.plays, hears.plays), _NOTHING)
