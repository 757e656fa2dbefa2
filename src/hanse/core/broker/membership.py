"""Who lives: membership of the brokers and suspicion of the silent ones, by gossip.

Every broker raises its own beat and tells two peers what it knows of all; a beat that has not risen for
``suspect_after`` makes its owner a suspect. Suspicion is a hint for liveness only: what it may set off
(adoption) is safe even when the suspect lives.
"""

import msgspec

from hanse.core.config import BrokerConfig
from hanse.model.messages import Gossip, Member


class Heard(msgspec.Struct, gc=False):
    """The latest word of one member, and when it came (own clock)."""

    epoch: int
    beat: int
    at: int
    suspect: bool = False
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
        self.heard: dict[str, Heard] = {}
        self._words: dict[str, Member] = {}
        """The same words as they are passed on, in the same order."""
        self.beat = 0
        self.epoch = 0

    def boot(self, now: int, epoch: int) -> None:
        """Start: everybody gets the benefit of the doubt once more."""
        self.epoch = epoch
        for peer in self.peers:
            heard = self.heard.setdefault(peer, Heard(0, 0, now))
            heard.at, heard.suspect = now, False
            self._words[peer] = Member(peer, heard.epoch, heard.beat, heard.version)

    def round(self, seed: int) -> tuple[tuple[str, ...], Gossip]:
        """Raise the own beat; whom to tell now, and what."""
        self.beat += 1
        peers, count = self.peers, len(self.peers)
        if count > 1:
            first = (seed + 2 * self.beat) % count  # in turn, so that nobody is left out for long
            peers = (peers[first], peers[(first + 1) % count])
        return peers, Gossip((self._own_word(), *self._words.values()))

    def _own_word(self) -> Member:
        return Member(self.name, self.epoch, self.beat, self.version)

    def learn(self, now: int, gossip: Gossip) -> None:
        """Take what a peer said. A later epoch outranks any beat of an earlier one."""
        known = self.heard
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
            heard.beat, heard.at = member.beat, now
            if heard.version != member.version:
                heard.version = member.version
            if heard.suspect:
                heard.suspect = False
            self._words[member.name] = member

    def suspects(self, now: int) -> list[str]:
        """Mark and return those newly suspected, in name order of the league."""
        fresh = []
        before = now - self.timings.suspect_after
        for name, heard in self.heard.items():
            if heard.at < before and not heard.suspect:
                heard.suspect = True
                fresh.append(name)
        return fresh

    def least_version(self) -> int:
        """The version of the league file that no broker can be behind."""
        if not self.peers:
            return self.version
        heard = (self.heard[peer].version if peer in self.heard else 0 for peer in self.peers)
        return min(map(max, heard, self._since))

    def alive(self, name: str) -> bool:
        """Whether a peer is not suspected."""
        heard = self.heard.get(name)
        return heard is not None and not heard.suspect

    def restore(self, epoch: int, beat: int, heard: dict[str, Heard]) -> None:
        """Take a dumped state."""
        self.epoch, self.beat = epoch, beat
        self.heard = {name: word for name, word in heard.items() if name in self.peers}
        self._words = self._as_told()

    def _as_told(self) -> dict[str, Member]:
        return {
            name: Member(name, heard.epoch, heard.beat, heard.version) for name, heard in self.heard.items()
        }

    def check(self) -> None:
        """Whether what is passed on is what was heard, in its order."""
        assert list(self._words.items()) == list(self._as_told().items()), f"{self.name} passes on old words"


def _ring(name: str, brokers: tuple[str, ...]) -> tuple[str, ...]:
    at = brokers.index(name)
    return brokers[at + 1 :] + brokers[:at]
