"""What is asked and answered about the league file at doors."""

from typing import Annotated

import msgspec
from msgspec import Meta

from hanse.live.membership.paxos import Question, Reply

FILE_CHARACTERS_MAX = 4 << 20
FileText = Annotated[str, Meta(max_length=FILE_CHARACTERS_MAX)]
Version = Annotated[int, Meta(ge=0, lt=1 << 53)]


class LeagueFile(msgspec.Struct, frozen=True):
    """``GET /v1/league/file``, and what brokers tell everybody."""

    version: Version
    digest: str
    """SHA-256 of the text, in hexadecimal."""
    text: FileText = ""
    """As YAML; empty: to compare first."""


class FileStanding(msgspec.Struct, frozen=True):
    """Which league file a member has."""

    version: Version
    digest: str
    problem: str = ""
    """Why it does not live by it yet; empty: it does, or will in a moment."""
    running: int = 0
    """Of a warden: attempts that it has, and ends that their broker has not taken. Of a broker: jobs and
    messages that would be lost with it."""
    estates: dict[str, int] = {}
    """Of a warden: the shards that it knows, and the latest term of each."""


class ApplyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``POST /v1/league/file``: the next version of the league file."""

    text: FileText
    force: bool = False
    """Retire clusters although tasks may run there."""
    try_only: bool = False
    """Say what would change, and change nothing."""


class ApplyAnswer(msgspec.Struct, frozen=True):
    """What became of it."""

    version: int
    changes: tuple[str, ...] = ()
    """A sentence each; none: nothing is different, and the version is the old one."""
    told: tuple[str, ...] = ()
    """Members that have the new file."""
    untold: tuple[str, ...] = ()
    """Members that could not be told yet: brokers tell them when they can be reached."""
    problems: dict[str, str] = {}
    """Members that cannot live by it yet, and why."""


FENCE_CHARACTERS_MAX = 2_000


class Fence(msgspec.Struct, frozen=True):
    """A member to a broker: why it may not act. The answer is the same."""

    reason: Annotated[str, Meta(max_length=FENCE_CHARACTERS_MAX)]


class BallotRequest(msgspec.Struct, frozen=True):
    """A broker's question to another."""

    question: Question


class BallotAnswer(msgspec.Struct, frozen=True):
    """The other's vote."""

    reply: Reply
