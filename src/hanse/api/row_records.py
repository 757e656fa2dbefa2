"""Records of jobs, tasks, decisions and changes, as the read model returns and the HTTP interface shows them.

Times are unix microseconds, or None if not recorded. A job whose ``owner`` is another broker is shown as far
as this broker knows: of a peer's job the standby learns only of ends.
"""

from typing import Final

import msgspec

from hanse.model.decision_record import ConsideredCluster, DecisionKind
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
"""Names of the states, by code. ``placed`` is claimed from a warden or accepted by it, and not started."""
STATES: Final = {name: code for code, name in enumerate(STATE_NAMES)}
STATE_COUNT: Final = len(STATE_NAMES)


def state_without_row(counts: list[int]) -> int:
    """Return the state of a group's tasks without a row in the file, from the group's tasks in each state:
    blocked if any is, or queued; if none waits, a large job was cancelled before they ran."""
    return BLOCKED if counts[BLOCKED] else QUEUED if counts[QUEUED] else CANCELLED


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job in a list."""

    id: str
    """The id in its usual form: ``1-7``."""
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
    """Time at which its first task was known to run."""
    ended: int | None
    priority: int
    klass: str
    clusters: tuple[str, ...]
    """Clusters where its tasks have run, in the order of first use."""
    cancel_reason: str
    owner: str
    """The broker that acts for it."""
    client_id: str
    cursor: str
    """Give it as ``after`` to get the rows behind this one."""


class GroupDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a job: its request, and the states of its tasks."""

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
    """The number of tasks in each state; states without tasks are left out."""


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all that is known of it, except its tasks."""

    row: JobRow
    spec: JobSpec
    groups: tuple[GroupDetail, ...]
    after: tuple[tuple[str, str], ...] = ()
    """Jobs that must succeed first, and the state of each as far as this broker knows; empty: unknown."""
    copy: bool = False
    """True if another broker acts for it, so that only what that broker tells its standby is known here."""


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task. The fields about usage and outcome describe the latest attempt that ran."""

    index: int
    group: str
    state: str
    attempt: int
    """0: none yet."""
    cluster: str
    """Cluster of the latest attempt; empty: none."""
    node: int | None
    outcome: str
    """Outcome of the latest attempt; empty while none has ended."""
    code: int | None
    """Exit code, or minus the signal number, of the attempt that ended; None if nobody knows it (the attempt
    was lost) or there is none (it never ran)."""
    usage: ResourceUsage | None
    note: str
    failures: int
    """Number of failures of its own."""
    started: int | None
    ended: int | None
    """Time at which the latest attempt ended, or at which a task that never ran was settled."""


class DecisionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded decision with its wall time."""

    at: int | None
    broker: str
    group: str
    answered: DecisionKind
    tasks: int
    reason: str
    considered: tuple[ConsideredCluster, ...]
    serial: int = 0
    """Rises; give the last one as ``after`` to get the decisions behind it."""


class JobStateChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a job's state. Serials rise, and a rebuilt file has the same ones."""

    serial: int
    job: str
    name: str
    tenant: str
    state: str
    owner: str
    at: int | None


class LoggedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision in the log of all jobs. Its serial is of one sequence with those of state changes."""

    serial: int
    job: str
    tenant: str
    row: DecisionRow


class RunningTaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A running task, and the resources that it holds."""

    job: str
    index: int
    name: str
    tenant: str
    group: str
    cluster: str
    node: int | None
    size: Resources
    started: int | None


class TenantTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The amount of a tenant's work in each state; states without any are left out."""

    tenant: str
    jobs: dict[str, int]
    tasks: dict[str, int]
