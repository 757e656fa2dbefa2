"""Who lives: membership of the brokers and suspicion of the silent ones, by gossip.

Every broker raises its own beat and tells two peers what it knows of all; a beat that has not risen for
``suspect_after`` makes its owner a suspect. Suspicion is a hint for liveness only: what it may set off
(adoption) is safe even when the suspect lives.
"""

import msgspec

from hanse.core.config import Timings
from hanse.model.messages import Gossip, Member


class Heard(msgspec.Struct, gc=False):
    """The latest word of one member, and when it came (own clock)."""

    epoch: int
    beat: int
    at: int
    suspect: bool = False


class Membership:
    """One broker's knowledge of the others."""

    def __init__(self, name: str, brokers: tuple[str, ...], timings: Timings) -> None:
        self.name = name
        self.timings = timings
        self.peers = tuple(broker for broker in brokers if broker != name)
        self.ring = _ring(name, brokers)
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
            self._words[peer] = Member(peer, heard.epoch, heard.beat)

    def round(self, seed: int) -> tuple[tuple[str, ...], Gossip]:
        """Raise the own beat; whom to tell now, and what."""
        self.beat += 1
        peers, count = self.peers, len(self.peers)
        if count > 1:
            first = (seed + 2 * self.beat) % count  # in turn, so that nobody is left out for long
            peers = (peers[first], peers[(first + 1) % count])
        return peers, Gossip((Member(self.name, self.epoch, self.beat), *self._words.values()))

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

    def alive(self, name: str) -> bool:
        """Whether a peer is not suspected."""
        heard = self.heard.get(name)
        return heard is not None and not heard.suspect

    def restore(self, epoch: int, beat: int, heard: dict[str, Heard]) -> None:
        """Take a dumped state."""
        self.epoch, self.beat, self.heard = epoch, beat, heard
        self._words = self._as_told()

    def _as_told(self) -> dict[str, Member]:
        return {name: Member(name, heard.epoch, heard.beat) for name, heard in self.heard.items()}

    def check(self) -> None:
        """Whether what is passed on is what was heard, in its order."""
        assert list(self._words.items()) == list(self._as_told().items()), f"{self.name} passes on old words"


def _ring(name: str, brokers: tuple[str, ...]) -> tuple[str, ...]:
    at = brokers.index(name)
    return brokers[at + 1 :] + brokers[:at]
