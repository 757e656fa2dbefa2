"""Agreement of the brokers on the next version of the league file: one Paxos decision for each version.

Two brokers may be asked for different changes at the same time. Version ``n + 1`` is whatever a majority of
the brokers of version ``n`` has accepted under one ballot; once there is such a majority, no other text can
get one. A broker's promises are on its disk before they are told.

This module has no clock and no network: ``Acceptor`` is one broker's vote, ``Tally`` counts the answers of
one round.
"""

from collections.abc import Callable

import msgspec

Ballot = tuple[int, str]
"""The number of a round and the name of the broker that holds it: no two rounds are equal."""
NO_BALLOT: Ballot = (0, "")


class Vote(msgspec.Struct, frozen=True):
    """What a broker has promised and accepted about one version."""

    version: int
    promised: Ballot = NO_BALLOT
    """It takes no part in a round below this one."""
    accepted: Ballot = NO_BALLOT
    text: str = ""
    """What it accepted in that round; empty: nothing."""


class Question(msgspec.Struct, frozen=True):
    """A broker to another: take part in this round (no ``text``), or accept this text in it."""

    version: int
    ballot: Ballot
    text: str = ""


class Reply(msgspec.Struct, frozen=True):
    """The answer: whether it agrees, and its vote as it stands now."""

    agreed: bool
    current: int
    """The version that it lives by."""
    vote: Vote


class Acceptor:
    """One broker's votes. ``keep`` makes a vote durable, and is called before it is told."""

    def __init__(self, vote: Vote, keep: Callable[[Vote], None]) -> None:
        self._vote = vote
        self._keep = keep

    def answer(self, question: Question, current: int) -> Reply:
        """Vote, living by version ``current``. Only the version behind it can be voted on."""
        vote = self._vote if self._vote.version == current + 1 else Vote(current + 1)
        if question.version != vote.version or question.ballot < vote.promised:
            return Reply(False, current, vote)
        if question.text:
            vote = Vote(vote.version, question.ballot, question.ballot, question.text)
        else:
            vote = msgspec.structs.replace(vote, promised=question.ballot)
        if vote != self._vote:
            self._keep(vote)
            self._vote = vote
        return Reply(True, current, vote)


class Tally:
    """The answers to one question, of ``size`` brokers in all."""

    def __init__(self, size: int) -> None:
        self._needed = size // 2 + 1
        self._agreed = 0
        self._latest: tuple[Ballot, str] = (NO_BALLOT, "")
        self.highest: Ballot = NO_BALLOT
        """The highest round that anybody has promised: the next one must be above it."""
        self.ahead = 0
        """The highest version that anybody lives by."""

    def add(self, reply: Reply) -> None:
        """Count an answer."""
        self._agreed += reply.agreed
        self._latest = max(self._latest, (reply.vote.accepted, reply.vote.text))
        self.highest = max(self.highest, reply.vote.promised)
        self.ahead = max(self.ahead, reply.current)

    @property
    def is_won(self) -> bool:
        """Whether a majority agrees."""
        return self._agreed >= self._needed

    @property
    def must_propose(self) -> str:
        """The text that this round has to go on with, because a majority may have it; empty: any will do."""
        return self._latest[1]
