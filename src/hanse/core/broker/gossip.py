"""Gossip of the brokers: which of them live, and suspicion of silent ones.

Every broker raises its own heartbeat and sends two peers what it knows of all. A broker whose heartbeat has
not risen for ``suspect_after`` becomes a suspect. Suspicion affects liveness only: a takeover that it starts
is safe even when the suspect lives.
"""

import msgspec

from hanse.core.config import BrokerConfig
from hanse.model.messages import Gossip, MemberStatus


class KnownMember(msgspec.Struct, gc=False, rename={"is_suspect": "suspect", "heard_at": "at"}):
    """Latest status of one member, and its time of arrival on the own clock."""

    epoch: int
    beat: int
    heard_at: int
    is_suspect: bool = False
    version: int = 0
    """Version of the league file that the member uses."""


class BrokerGossip:
    """Knowledge of one broker about the others."""

    def __init__(self, config: BrokerConfig) -> None:
        self.name = config.name
        self.timings = config.timings
        self.version = self.told_version = config.version
        """Version of the league file: the one in use, and the one that peers are told."""
        self.ring = tuple(name for name in _ring(config.name, config.brokers) if name not in config.retired)
        self.peers = tuple(name for name in config.brokers if name in self.ring)
        since = dict(zip(config.brokers, config.brokers_since, strict=False))
        self._since = tuple(since.get(peer, 0) for peer in self.peers)
        """Version in which each peer joined: the peer has never used an older one."""
        self.known: dict[str, KnownMember] = {}
        self._statuses: dict[str, MemberStatus] = {}
        """Statuses of ``known`` as they are forwarded, in the same order."""
        self.beat = 0
        self.epoch = 0

    def boot(self, now: int, epoch: int) -> None:
        """Start with no suspects: every peer gets a full ``suspect_after`` again."""
        self.epoch = epoch
        for peer in self.peers:
            known_member = self.known.setdefault(peer, KnownMember(0, 0, now))
            known_member.heard_at, known_member.is_suspect = now, False
            self._statuses[peer] = MemberStatus(
                peer, known_member.epoch, known_member.beat, known_member.version
            )

    def next_gossip(self, seed: int) -> tuple[tuple[str, ...], Gossip]:
        """Raise the own heartbeat; return the peers to tell now, and the message."""
        self.beat += 1
        peers, count = self.peers, len(self.peers)
        if count > 1:
            first = (seed + 2 * self.beat) % count  # in turn, so that every peer is told regularly
            peers = (peers[first], peers[(first + 1) % count])
        return peers, Gossip((self._own_status(), *self._statuses.values()))

    def _own_status(self) -> MemberStatus:
        return MemberStatus(self.name, self.epoch, self.beat, self.told_version)

    def on_gossip(self, now: int, gossip: Gossip) -> None:
        """Apply a peer's gossip. A later epoch outranks any heartbeat of an earlier one."""
        known = self.known
        for member in gossip.members:
            known_member = known.get(member.name)
            if known_member is None:
                continue
            if member.epoch != known_member.epoch:
                if member.epoch < known_member.epoch:
                    continue
                known_member.epoch = member.epoch
            elif member.beat <= known_member.beat:
                continue
            known_member.beat, known_member.heard_at = member.beat, now
            if known_member.version != member.version:
                known_member.version = member.version
            if known_member.is_suspect:
                known_member.is_suspect = False
            self._statuses[member.name] = member

    def suspect_silent(self, now: int) -> list[str]:
        """Mark silent peers as suspects; return the new ones, in name order of the league."""
        fresh = []
        before = now - self.timings.suspect_after
        for name, known_member in self.known.items():
            if known_member.heard_at < before and not known_member.is_suspect:
                known_member.is_suspect = True
                fresh.append(name)
        return fresh

    def least_version(self) -> int:
        """Return the version of the league file that every broker has at least."""
        if not self.peers:
            return self.version
        versions = (self.known[peer].version if peer in self.known else 0 for peer in self.peers)
        return min(map(max, versions, self._since))

    def is_alive(self, name: str) -> bool:
        """True if a peer is not suspected."""
        known_member = self.known.get(name)
        return known_member is not None and not known_member.is_suspect

    def restore(self, epoch: int, beat: int, known_members: dict[str, KnownMember]) -> None:
        """Restore a dumped state."""
        self.epoch, self.beat = epoch, beat
        self.known = {name: member for name, member in known_members.items() if name in self.peers}
        self._statuses = self._make_statuses()

    def _make_statuses(self) -> dict[str, MemberStatus]:
        return {
            name: MemberStatus(name, known_member.epoch, known_member.beat, known_member.version)
            for name, known_member in self.known.items()
        }

    def check(self) -> None:
        """Assert that the forwarded statuses are the known ones, in their order."""
        assert list(self._statuses.items()) == list(self._make_statuses().items()), (
            f"{self.name} forwards old statuses"
        )


def _ring(name: str, brokers: tuple[str, ...]) -> tuple[str, ...]:
    at = brokers.index(name)
    return brokers[at + 1 :] + brokers[:at]
