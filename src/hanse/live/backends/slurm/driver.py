"""Interface to Slurm, with its records and errors: the same by commands and by REST."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

REASON_LENGTH_MAX: Final = 100
ENVIRONMENT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PENDING_STATES: Final = frozenset(
    ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
)
"""States of jobs that wait: they hold no resources."""
ENDED_STATES: Final = frozenset(
    (
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "PREEMPTED", "REVOKED", "TIMEOUT",
    )
)  # fmt: skip
"""States of jobs that have ended. All others hold resources: running, completing, suspended."""
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


_UNAVAILABLE_MESSAGES: Final = (
    "unable to contact", "connect failure", "connection refused", "connection reset", "broken pipe",
    "timed out", "zero bytes",
    "communication connection failure", "resource temporarily unavailable", "backup controller",
    "not responding", "socket", "munge", "in standby", "protocol authentication error", "transport",
    "unexpected message",
)  # fmt: skip
"""Parts of Slurm's messages for an absent Slurm rather than a refusal."""
_RETRY_MESSAGES: Final = (
    "required node not available", "nodes required for job are down", "temporarily unable to accept job",
    "violates accounting/qos policy", "requested partition configuration not available now",
    "slurm temporarily", "required partition not available",
)  # fmt: skip
"""Parts of Slurm's messages for jobs that it may take another time."""


class SlurmUnavailableError(Exception):
    """Slurm did not answer: it may or may not have carried out the request. Try again later."""


class SlurmRefusedError(Exception):
    """Slurm understood the request, and refuses it."""


class SlurmRetryLaterError(SlurmRefusedError):
    """Slurm does not take a job now, and may take it soon: right after its start it knows no node."""


class SlurmJob(msgspec.Struct, frozen=True):
    """A job of Hanse's, or an element of an array."""

    number: int
    """Number of the job, or of the whole array."""
    element: int
    """Index in the array; -1: no array. -2: all elements of an array that are not listed otherwise."""
    own_number: int
    """Own number, also of an element; 0: none yet."""
    name: str
    state: str
    node: str
    """Node on which it holds resources; empty: none."""
    cpus: int = 0
    memory: int = 0
    """Bytes."""
    gres: tuple[tuple[str, int], ...] = ()
    reason: str = ""
    """Slurm's reason for the wait."""
    launched_at: int = 0
    """Time of its last launch by Slurm, in unix seconds; 0: not yet, or unknown."""

    @property
    def reference(self) -> str:
        """Name of the job in Slurm's commands."""
        return str(self.number) if self.element < 0 else f"{self.number}_{self.element}"

    @property
    def has_ended(self) -> bool:
        """True if it has ended."""
        return self.state in ENDED_STATES

    @property
    def holds_resources(self) -> bool:
        """True if it holds resources on a node."""
        return self.node != "" and self.state not in ENDED_STATES and self.state not in PENDING_STATES


class SlurmNode(msgspec.Struct, frozen=True):
    """A node in Slurm's present state."""

    name: str
    is_open: bool
    """True if new jobs can start there, as far as it depends on the node's state."""
    cpus: int
    memory: int
    """Bytes."""
    gres: tuple[tuple[str, int], ...]
    cpus_used: int
    """CPUs held by all jobs, Hanse's and others'."""
    memory_used: int
    gres_used: tuple[tuple[str, int], ...]
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    arch: str
    system: str
    """The name of its operating system."""
    state: str = ""
    """State in Slurm's words, such as ``IDLE+DRAIN``."""
    reason: str = ""
    """Reason given for its closing, by a person or by Slurm; empty: none."""


class SlurmPartition(msgspec.Struct, frozen=True):
    """A partition in Slurm's present state."""

    name: str
    is_open: bool
    """True if it takes jobs and starts them: not down, inactive or draining."""
    is_default: bool
    """True if jobs without a named partition go there."""


class SlurmSubmission(msgspec.Struct, frozen=True):
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
    """Required node; empty: Slurm chooses."""


class SlurmDriver(Protocol):
    """Access to one Slurm cluster. Calls raise ``SlurmUnavailableError`` or ``SlurmRefusedError``."""

    has_arrays: bool
    """True if equal tasks can be one job."""

    async def submit(self, submission: SlurmSubmission) -> int:
        """Submit a job and return its number."""
        ...

    async def cancel(self, jobs: Sequence[SlurmJob]) -> None:
        """End these jobs if they still have the names they were listed with."""
        ...

    async def jobs(self) -> list[SlurmJob]:
        """Return all jobs whose names have Hanse's prefix, ended ones for as long as Slurm remembers them."""
        ...

    async def nodes(self) -> list[SlurmNode]:
        """Return all nodes."""
        ...

    async def partitions(self) -> list[SlurmPartition]:
        """Return all partitions."""
        ...

    async def close(self) -> None:
        """End all open requests."""
        ...


def error_of_complaint(complaint: str) -> Exception:
    """Return the error for a message of Slurm's."""
    words = complaint.lower()
    if any(each in words for each in _UNAVAILABLE_MESSAGES):
        return SlurmUnavailableError(complaint)
    if any(each in words for each in _RETRY_MESSAGES):
        return SlurmRetryLaterError(complaint)
    return SlurmRefusedError(complaint)


def clean_reason(text: str) -> str:
    """Return the reason why a job waits, with spaces for underscores; empty: there is none."""
    words = text.strip("()").replace("_", " ").strip()
    return "" if words in ("None", "null") else words[:REASON_LENGTH_MAX]


def parse_gres(text: str) -> tuple[tuple[str, int], ...]:
    """Return counts by name from ``gpu:a100:2(IDX:0-1),fpga:3`` or ``gres:gpu:1``, sorted; kinds of one name
    are summed."""
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
