"""Requests and answers about the league file."""

from typing import Annotated

import msgspec
from msgspec import Meta

from hanse.live.membership.paxos import VoteReply, VoteRequest

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


class BallotRequest(msgspec.Struct, frozen=True):
    """A broker's question to another."""

    question: VoteRequest


class BallotAnswer(msgspec.Struct, frozen=True):
    """The other broker's vote."""

    reply: VoteReply
