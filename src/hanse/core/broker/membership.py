"""Who lives: membership of the brokers and suspicion of the silent ones, by gossip.

Every broker raises its own beat and tells two peers what it knows of all; a beat that has not risen for
``suspect_after`` makes its owner a suspect. Suspicion is a hint for liveness only: what it may set off
(adoption) is safe even when the suspect lives.
"""

import msgspec

from hanse.core.config import BrokerConfig
from hanse.model.messages import Gossip, MemberStatus


class KnownMember(msgspec.Struct, gc=False, rename={"is_suspect": "suspect", "heard_at": "at"}):
    """The latest word of one member, and when it came (own clock)."""

    epoch: int
    beat: int
    heard_at: int
    is_suspect: bool = False
    version: int = 0
    """The version of the league file that it lives by."""


class Membership:
    """One broker's knowledge of the others."""

    def __init__(self, config: BrokerConfig) -> None:
        self.name = config.name
        self.timings = config.timings
        self.version = config.version
        self.ring = tuple(name for name in _ring(config.name, config.brokers) if name not in config.retired)
        self.peers = tuple(name for name in config.brokers if name in self.ring)
        since = dict(zip(config.brokers, config.brokers_since, strict=False))
        self._since = tuple(since.get(peer, 0) for peer in self.peers)
        """The version in which each peer joined: it has never lived by an older one."""
        self.known: dict[str, KnownMember] = {}
        self._statuses: dict[str, MemberStatus] = {}
        """The same words as they are passed on, in the same order."""
        self.beat = 0
        self.epoch = 0

    def boot(self, now: int, epoch: int) -> None:
        """Start: everybody gets the benefit of the doubt once more."""
        self.epoch = epoch
        for peer in self.peers:
            heard = self.known.setdefault(peer, KnownMember(0, 0, now))
            heard.heard_at, heard.is_suspect = now, False
            self._statuses[peer] = MemberStatus(peer, heard.epoch, heard.beat, heard.version)

    def next_gossip(self, seed: int) -> tuple[tuple[str, ...], Gossip]:
        """Raise the own beat; whom to tell now, and what."""
        self.beat += 1
        peers, count = self.peers, len(self.peers)
        if count > 1:
            first = (seed + 2 * self.beat) % count  # in turn, so that nobody is left out for long
            peers = (peers[first], peers[(first + 1) % count])
        return peers, Gossip((self._own_status(), *self._statuses.values()))

    def _own_status(self) -> MemberStatus:
        return MemberStatus(self.name, self.epoch, self.beat, self.version)

    def on_gossip(self, now: int, gossip: Gossip) -> None:
        """Take what a peer said. A later epoch outranks any beat of an earlier one."""
        known = self.known
        for member in gossip.members:
            heard = known.get(member.name)
            if heard is None:
                continue
            if member.epoch != heard.epoch:
                if member.epoch < heard.epoch:
                    continue
                heard.epoch = member.epoch
            elif member.beat <= heard.beat:
                continue
            heard.beat, heard.heard_at = member.beat, now
            if heard.version != member.version:
                heard.version = member.version
            if heard.is_suspect:
                heard.is_suspect = False
            self._statuses[member.name] = member

    def suspect_silent(self, now: int) -> list[str]:
        """Mark and return those newly suspected, in name order of the league."""
        fresh = []
        before = now - self.timings.suspect_after
        for name, heard in self.known.items():
            if heard.heard_at < before and not heard.is_suspect:
                heard.is_suspect = True
                fresh.append(name)
        return fresh

    def least_version(self) -> int:
        """The version of the league file that no broker can be behind."""
        if not self.peers:
            return self.version
        heard = (self.known[peer].version if peer in self.known else 0 for peer in self.peers)
        return min(map(max, heard, self._since))

    def is_alive(self, name: str) -> bool:
        """Whether a peer is not suspected."""
        heard = self.known.get(name)
        return heard is not None and not heard.is_suspect

    def restore(self, epoch: int, beat: int, heard: dict[str, KnownMember]) -> None:
        """Take a dumped state."""
        self.epoch, self.beat = epoch, beat
        self.known = {name: word for name, word in heard.items() if name in self.peers}
        self._statuses = self._make_statuses()

    def _make_statuses(self) -> dict[str, MemberStatus]:
        return {
            name: MemberStatus(name, heard.epoch, heard.beat, heard.version)
            for name, heard in self.known.items()
        }

    def check(self) -> None:
        """Whether what is passed on is what was heard, in its order."""
        assert list(self._statuses.items()) == list(self._make_statuses().items()), (
            f"{self.name} passes on old words"
        )


def _ring(name: str, brokers: tuple[str, ...]) -> tuple[str, ...]:
    at = brokers.index(name)
    return brokers[at + 1 :] + brokers[:at]
