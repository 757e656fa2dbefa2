"""What the backend asks of Slurm, and what it is told: the same by commands and by REST."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

REASON_LENGTH_MAX: Final = 100
ENVIRONMENT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PENDING: Final = frozenset(
    ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
)
"""States of jobs that wait: they hold no room."""
OVER: Final = frozenset(
    (
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "PREEMPTED", "REVOKED", "TIMEOUT",
    )
)  # fmt: skip
"""States of jobs that have ended. All others hold room: running, completing, suspended."""
CLOSED_STATES: Final = frozenset(
    (
        "DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVAL", "MAINT",
        "NOT_RESPONDING", "PERFCTRS", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "REBOOT",
        "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "UNKNOWN",
    )
)  # fmt: skip
"""States and flags of nodes that are not to be used now."""
OPEN_STATE: Final = "UP"
"""The one state of a partition in which it takes jobs and starts them."""


_AWAY: Final = (
    "unable to contact", "connect failure", "connection refused", "connection reset", "broken pipe",
    "timed out", "zero bytes",
    "communication connection failure", "resource temporarily unavailable", "backup controller",
    "not responding", "socket", "munge", "in standby", "protocol authentication error", "transport",
    "unexpected message",
)  # fmt: skip
"""What Slurm says when it is not there rather than unwilling."""
_LATER: Final = (
    "required node not available", "nodes required for job are down", "temporarily unable to accept job",
    "violates accounting/qos policy", "requested partition configuration not available now",
    "slurm temporarily", "required partition not available",
)  # fmt: skip
"""What Slurm says of jobs that it may take another time."""


class SlurmAwayError(Exception):
    """Slurm did not answer: what was asked may or may not have been done. Ask again later."""


class SlurmRefusedError(Exception):
    """Slurm has understood, and will not do it."""


class SlurmLaterError(SlurmRefusedError):
    """Slurm does not take a job now, and may take it soon: right after its start it knows no node."""


class SlurmJob(msgspec.Struct, frozen=True):
    """A job, or an element of an array, with a name that begins like ours."""

    number: int
    """Of the job, or of the whole array."""
    element: int
    """Its place in the array; -1: no array. -2: those elements of an array that are not listed otherwise."""
    own: int
    """Its own number, which an element has too; 0: none yet."""
    name: str
    state: str
    node: str
    """Where it holds room; empty: nowhere."""
    cpus: int = 0
    memory: int = 0
    """Bytes."""
    gres: tuple[tuple[str, int], ...] = ()
    reason: str = ""
    """Why it waits, in Slurm's word."""
    launched: int = 0
    """When Slurm launched it, the last time, in unix seconds; 0: not yet, or it does not say."""

    @property
    def reference(self) -> str:
        """How Slurm's commands call it."""
        return str(self.number) if self.element < 0 else f"{self.number}_{self.element}"

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in OVER

    @property
    def holds_room(self) -> bool:
        """Whether room on a node is held by it."""
        return self.node != "" and self.state not in OVER and self.state not in PENDING


class SlurmNode(msgspec.Struct, frozen=True):
    """A node as Slurm sees it now."""

    name: str
    is_open: bool
    """Whether new jobs can start there, as far as it depends on the node's state."""
    cpus: int
    memory: int
    """Bytes."""
    gres: tuple[tuple[str, int], ...]
    cpus_used: int
    """By all jobs, ours and others'."""
    memory_used: int
    gres_used: tuple[tuple[str, int], ...]
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    arch: str
    system: str
    """The name of its operating system."""
    state: str = ""
    """In Slurm's words, such as ``IDLE+DRAIN``."""
    reason: str = ""
    """Why somebody, or Slurm, has closed it; empty: nobody said."""


class SlurmPartition(msgspec.Struct, frozen=True):
    """A partition as Slurm sees it now."""

    name: str
    is_open: bool
    """Whether it takes jobs and starts them: not down, inactive or draining."""
    is_default: bool
    """Whether jobs go there that name none."""


class Submission(msgspec.Struct, frozen=True):
    """A job to submit, or an array of equal ones."""

    name: str
    comment: str
    script: str
    count: int
    """Elements; 1: no array."""
    cpus: int
    memory_mib: int
    gres: tuple[tuple[str, int], ...]
    node: str
    """Where it must run; empty: where Slurm likes."""


class SlurmDriver(Protocol):
    """One way to talk to one Slurm cluster. Every call raises ``SlurmAwayError`` or ``SlurmRefusedError``."""

    arrays: bool
    """Whether equal tasks can be one job."""

    async def submit(self, submission: Submission) -> int:
        """Submit a job; its number."""
        ...

    async def cancel(self, jobs: Sequence[SlurmJob]) -> None:
        """End these jobs if they still have the names they were listed with."""
        ...

    async def jobs(self) -> list[SlurmJob]:
        """All jobs whose name begins like ours, ended ones for as long as Slurm remembers them."""
        ...

    async def nodes(self) -> list[SlurmNode]:
        """All nodes."""
        ...

    async def partitions(self) -> list[SlurmPartition]:
        """All partitions."""
        ...

    async def close(self) -> None:
        """End what is under way."""
        ...


def complaint_error(complaint: str) -> Exception:
    """The error that Slurm's own words mean."""
    words = complaint.lower()
    if any(each in words for each in _AWAY):
        return SlurmAwayError(complaint)
    if any(each in words for each in _LATER):
        return SlurmLaterError(complaint)
    return SlurmRefusedError(complaint)


def plain_reason(text: str) -> str:
    """Why a job waits, as Slurm says it, with the spaces that lists replace; empty: there is no reason."""
    words = text.strip("()").replace("_", " ").strip()
    return "" if words in ("None", "null") else words[:REASON_LENGTH_MAX]


def parse_gres(text: str) -> tuple[tuple[str, int], ...]:
    """Counts by name from ``gpu:a100:2(IDX:0-1),fpga:3`` or ``gres:gpu:1``, sorted; kinds of one name are
    summed."""
    found: dict[str, int] = {}
    depth, plain = 0, []
    for character in text:
        depth += character == "("
        if not depth:
            plain.append(character)
        depth -= character == ")"
    for word in "".join(plain).split(","):
        fields = word.removeprefix("gres:").removeprefix("gres/").replace("=", ":").split(":")
        if not fields[0] or fields[0] in ("N/A", "(null)"):
            continue
        count = fields[-1] if len(fields) > 1 else "1"
        found[fields[0]] = found.get(fields[0], 0) + (int(count) if count.isdigit() else 1)
    return tuple(sorted((name, count) for name, count in found.items() if count))
