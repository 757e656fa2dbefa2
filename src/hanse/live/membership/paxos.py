"""Agreement of the brokers on the next version of the league file: one Paxos decision for each version.

Two brokers may be asked for different changes at the same time. Version ``n + 1`` is the text that a majority
of the brokers of version ``n`` has accepted under one ballot; once there is such a majority, no other text
can get one. A broker's promises are on its disk before they are sent.

This module has no clock and no network: ``Acceptor`` is one broker's vote, ``VoteCount`` counts the answers
of one round.
"""

from collections.abc import Callable

import msgspec

from hanse.api.league_file_records import NO_BALLOT, Ballot, Vote, VoteReply, VoteRequest


class Acceptor:
    """Votes of one broker. ``write_vote`` makes a vote durable, and is called before the vote is sent."""

    def __init__(self, vote: Vote, write_vote: Callable[[Vote], None]) -> None:
        self._vote = vote
        self._write_vote = write_vote

    def answer(self, question: VoteRequest, current: int) -> VoteReply:
        """Vote at version ``current``. Only the next version can be voted on."""
        vote = self._vote if self._vote.version == current + 1 else Vote(current + 1)
        if question.version != vote.version or question.ballot < vote.promised:
            return VoteReply(False, current, vote)
        if question.text:
            vote = Vote(vote.version, question.ballot, question.ballot, question.text)
        else:
            vote = msgspec.structs.replace(vote, promised=question.ballot)
        if vote != self._vote:
            self._write_vote(vote)
            self._vote = vote
        return VoteReply(True, current, vote)


class VoteCount:
    """Count of the replies to one request, of ``size`` brokers in all."""

    def __init__(self, size: int) -> None:
        self._needed = size // 2 + 1
        self._agreed = 0
        self._latest: tuple[Ballot, str] = (NO_BALLOT, "")
        self.highest_ballot: Ballot = NO_BALLOT
        """Highest round that a broker has promised: the next one must be above it."""
        self.highest_version = 0
        """Highest version that a broker uses."""

    def add(self, reply: VoteReply) -> None:
        """Count a reply."""
        self._agreed += reply.agreed
        self._latest = max(self._latest, (reply.vote.accepted, reply.vote.text))
        self.highest_ballot = max(self.highest_ballot, reply.vote.promised)
        self.highest_version = max(self.highest_version, reply.current)

    @property
    def is_won(self) -> bool:
        """True if a majority agrees."""
        return self._agreed >= self._needed

    @property
    def text_to_propose(self) -> str:
        """Text that this round must propose, because a majority may have accepted it; empty: any text."""
        return self._latest[1]
