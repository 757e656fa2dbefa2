"""Requests and answers about the league file, and the votes by which brokers agree on its next version."""

from typing import Annotated

import msgspec
from msgspec import Meta

FILE_CHARACTERS_MAX = 4 << 20
FileText = Annotated[str, Meta(max_length=FILE_CHARACTERS_MAX)]
Version = Annotated[int, Meta(ge=0, lt=1 << 53)]


class LeagueFile(msgspec.Struct, frozen=True):
    """``GET /v1/league/file``, and the message of brokers to all members."""

    version: Version
    digest: str
    """SHA-256 of the text, in hexadecimal."""
    text: FileText = ""
    """The file as YAML; empty: only compare versions."""


class FileStanding(msgspec.Struct, frozen=True):
    """The league file of a member."""

    version: Version
    digest: str
    problem: str = ""
    """Reason why the member does not use the file yet; empty: it does, or will soon."""
    running: int = 0
    """Of a warden: its attempts, and the ends that their brokers have not taken. Of a broker: jobs and
    messages that would be lost with it."""
    estates: dict[str, int] = {}
    """Of a warden: the shards that it knows, and the latest term of each."""
    drained: bool = False
    """Of a warden: True if every node is drained."""


class ApplyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``POST /v1/league/file``: the next version of the league file."""

    text: FileText
    force: bool = False
    """Retire clusters although tasks may run there."""
    try_only: bool = False
    """Report the changes without making them."""


class ApplyAnswer(msgspec.Struct, frozen=True):
    """The result of ``POST /v1/league/file``."""

    version: int
    changes: tuple[str, ...] = ()
    """One sentence per change; empty: nothing is different, and the version is the old one."""
    told: tuple[str, ...] = ()
    """Members that have the new file."""
    untold: tuple[str, ...] = ()
    """Members that do not have the new file yet: brokers tell them when they can be reached."""
    problems: dict[str, str] = {}
    """Members that cannot use the new file yet, and the reasons."""


FENCE_CHARACTERS_MAX = 2_000


class Fence(msgspec.Struct, frozen=True):
    """The reason why a member may not act, from that member to a broker. The answer is the same record."""

    reason: Annotated[str, Meta(max_length=FENCE_CHARACTERS_MAX)]


Ballot = tuple[int, str]
"""Number of a round and name of the broker that holds it: no two rounds are equal."""
NO_BALLOT: Ballot = (0, "")


class Vote(msgspec.Struct, frozen=True):
    """Promise and acceptance of a broker for one version."""

    version: int
    promised: Ballot = NO_BALLOT
    """The broker takes no part in a round below this one."""
    accepted: Ballot = NO_BALLOT
    text: str = ""
    """Text accepted in round ``accepted``; empty: none."""


class VoteRequest(msgspec.Struct, frozen=True):
    """Request of a broker to another: take part in this round (no ``text``), or accept this text in it."""

    version: int
    ballot: Ballot
    text: str = ""


class VoteReply(msgspec.Struct, frozen=True):
    """Reply of a broker: its agreement, and its vote as it is now."""

    agreed: bool
    current: int
    """Version that the broker uses."""
    vote: Vote


class BallotRequest(msgspec.Struct, frozen=True):
    """A broker's question to another."""

    question: VoteRequest


class BallotAnswer(msgspec.Struct, frozen=True):
    """The other broker's vote."""

    reply: VoteReply
