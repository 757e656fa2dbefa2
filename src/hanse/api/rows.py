"""What the read models answer with: jobs, tasks, decisions and changes as people see them.

Times are unix microseconds, or None where nobody has said. A job whose ``owner`` is another broker is shown
as far as this broker has been told: of a peer's job the standby hears only what has ended.
"""

from typing import Final

import msgspec

from hanse.model.decision import ConsideredCluster, DecisionKind
from hanse.model.job import JobSpec
from hanse.model.messages import ResourceUsage
from hanse.model.resources import Resources

BLOCKED: Final = 0
QUEUED: Final = 1
PLACED: Final = 2
RUNNING: Final = 3
SUCCEEDED: Final = 4
FAILED: Final = 5
CANCELLED: Final = 6
STATE_NAMES: Final = ("blocked", "queued", "placed", "running", "succeeded", "failed", "cancelled")
"""States as people see them, by code. ``placed`` is claimed from a warden or taken by it, and not started."""
STATES: Final = {name: code for code, name in enumerate(STATE_NAMES)}
KINDS: Final = len(STATE_NAMES)


def rowless(counts: list[int]) -> int:
    """The state of a group's tasks of which the file has no row, by the group's tasks in each state: blocked
    if any is, or queued; if nothing waits, a large job was cancelled before they ran."""
    return BLOCKED if counts[BLOCKED] else QUEUED if counts[QUEUED] else CANCELLED


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job in a list."""

    id: str
    """As people write it: ``1-7``."""
    name: str
    tenant: str
    state: str
    total: int
    waiting: int
    """Tasks that are blocked, queued or placed."""
    running: int
    succeeded: int
    failed: int
    cancelled: int
    submitted: int | None
    started: int | None
    """When its first task was known to run."""
    ended: int | None
    priority: int
    klass: str
    clusters: tuple[str, ...]
    """Where its tasks have run, in the order in which it first used these clusters."""
    cancel_reason: str
    owner: str
    """The broker that acts for it."""
    client_id: str
    cursor: str
    """Give it as ``after`` to get the rows behind this one."""


class GroupDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a job: what was asked for, and where its tasks stand."""

    name: str
    count: int
    ask: Resources
    ask_max: Resources | None
    where: str
    """The condition as text; empty: anywhere."""
    needs: tuple[str, ...]
    duration: int | None
    """The user's estimate, in microseconds."""
    command: tuple[str, ...]
    """The program and its arguments; empty if the payload is not a command."""
    states: dict[str, int]
    """How many tasks are in each state; states without any are left out."""


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all that is known of it, except its tasks."""

    row: JobRow
    spec: JobSpec
    groups: tuple[GroupDetail, ...]
    after: tuple[tuple[str, str], ...] = ()
    """Jobs that must succeed first, and the state of each as far as this broker knows; empty: unknown."""
    copy: bool = False
    """Whether another broker acts for it, so that only what it tells its standby is known here."""


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task. What an attempt used and how it ended is about the latest attempt that ran."""

    index: int
    group: str
    state: str
    attempt: int
    """0: none yet."""
    cluster: str
    """Where the latest attempt is or was; empty: nowhere."""
    node: int | None
    outcome: str
    """How the latest attempt ended; empty while none has."""
    code: int | None
    """Exit code, or minus the signal number, of the attempt that ended."""
    usage: ResourceUsage | None
    note: str
    failures: int
    """How often it has failed by itself."""
    started: int | None
    ended: int | None
    """When the latest attempt ended, or when a task that never ran was settled."""


class DecisionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded decision with its time as people know it."""

    at: int | None
    broker: str
    group: str
    answered: DecisionKind
    tasks: int
    reason: str
    considered: tuple[ConsideredCluster, ...]
    serial: int = 0
    """Rises; give the last one as ``after`` to get the decisions behind it."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A job has come into another state. Serials rise, and a rebuilt file has the same ones."""

    serial: int
    job: str
    name: str
    tenant: str
    state: str
    owner: str
    at: int | None


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """A decision among those about all jobs. Its serial is of one sequence with those of changes."""

    serial: int
    job: str
    tenant: str
    row: DecisionRow


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A running task, and the room that it takes."""

    job: str
    index: int
    name: str
    tenant: str
    group: str
    cluster: str
    node: int | None
    size: Resources
    started: int | None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a tenant's work is in each state; states without any are left out."""

    tenant: str
    jobs: dict[str, int]
    tasks: dict[str, int]
