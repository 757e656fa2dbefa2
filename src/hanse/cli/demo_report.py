"""Report of ``hanse demo``: the records that it prints, or writes as JSON.

Times in seconds since the league was ready.
"""

import msgspec


class DemoJob(msgspec.Struct, frozen=True):
    """Report about one job. Times in seconds."""

    name: str
    what: str
    """Special feature of the job."""
    job: str
    """Job id; empty if the job was refused."""
    submitted_to: str
    ended_at: str
    """Broker that owned the job at its end: another one after a takeover."""
    submitted: float
    tasks: int
    attempts: int
    """Attempts that ran; more than tasks if some were preempted, lost or failed."""
    places: dict[str, int]
    """Cluster -> attempts that ran there."""
    first_start: float | None
    """Seconds from submission to the start of its first task."""
    mean_start: float | None
    """Mean seconds from submission to the start of a task."""
    finished: float | None
    """Seconds from submission to its end."""
    outcome: str


class DemoEvent(msgspec.Struct, frozen=True):
    """Event of the league worth reporting, such as a crash."""

    at: float
    text: str


class DemoDecision(msgspec.Struct, frozen=True):
    """Recorded decision."""

    at: float
    broker: str
    job: str
    group: str
    answered: str
    tasks: int
    reason: str
    considered: tuple[tuple[str, int, str], ...]


class Promise(msgspec.Struct, frozen=True):
    """Promise of the league, and what it was checked against."""

    promise: str
    checked: str


class DemoReport(msgspec.Struct, frozen=True):
    """Report of the demonstration."""

    seed: int
    simulated: float
    """Seconds until the last job ended."""
    events: int
    digest: str
    jobs: tuple[DemoJob, ...]
    happenings: tuple[DemoEvent, ...]
    decisions: tuple[DemoDecision, ...]
    promises: tuple[Promise, ...]
    violation: str
    """Broken promise; empty if all were kept."""
