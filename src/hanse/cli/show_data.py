"""Data of ``hanse show``, collected from the league."""

from typing import Final

import msgspec

from hanse.api.row_records import DecisionRow, JobDetail, TaskRow
from hanse.client.client import LeagueClient
from hanse.client.job_listing import PAGE_ROWS
from hanse.model.messages import ResourceUsage

USAGE_TASKS_MAX: Final = 10_000
"""Tasks whose usage is added up; of a larger job only the first tasks count."""
STATE_ORDER: Final = ("failed", "running", "placed", "cancelled", "queued", "blocked", "succeeded")
"""Order of states in the task list: failures first."""
DECISIONS_MAX: Final = 10


class UsageSum(msgspec.Struct, frozen=True):
    """Sum of the measured usage of tasks."""

    tasks: int
    """Tasks with a measurement."""
    of: int
    """Tasks that were read."""
    cpu: int
    """Microseconds of CPU time."""
    ran: int
    """Microseconds of run time."""
    memory: int
    """Peak memory of a single task, in bytes."""


class JobPage(msgspec.Struct, frozen=True):
    """Data of the whole page."""

    detail: JobDetail
    tasks: tuple[TaskRow, ...]
    """First tasks in ``STATE_ORDER``."""
    usage: UsageSum
    sentences: tuple[str, ...]
    decisions: tuple[DecisionRow, ...]

    def as_json(self) -> dict[str, object]:
        """Return the data for JSON: the job's row, its groups, and the rest; without payloads."""
        return {
            "job": self.detail.row,
            "groups": self.detail.groups,
            "after": self.detail.after,
            "tasks": self.tasks,
            "usage": self.usage,
            "sentences": self.sentences,
            "decisions": self.decisions,
        }


def collect_page(client: LeagueClient, job: str, tasks_max: int) -> JobPage:
    """Fetch everything that the page shows."""
    detail = client.job(job)
    rows = _fetch_tasks(client, job)
    usage = _sum_usage(rows)
    if detail.row.total > len(rows) and detail.row.failed:  # failed tasks may be among those not read
        listed = {row.index for row in rows}
        failed = client.tasks(job, state="failed", limit=max(1, min(tasks_max, PAGE_ROWS))).tasks
        rows += [row for row in failed if row.index not in listed]
    rows.sort(
        key=lambda row: (
            STATE_ORDER.index(row.state) if row.state in STATE_ORDER else len(STATE_ORDER),
            row.index,
        )
    )
    answer = client.why(job)
    return JobPage(
        detail, tuple(rows[:tasks_max]), usage, answer.sentences, answer.decisions[-DECISIONS_MAX:]
    )


def _fetch_tasks(client: LeagueClient, job: str) -> list[TaskRow]:
    rows: list[TaskRow] = []
    after: str | None = ""
    while after is not None and len(rows) < USAGE_TASKS_MAX:
        page = client.tasks(job, after=after)
        rows += page.tasks
        after = page.next
    return rows


def _sum_usage(rows: list[TaskRow]) -> UsageSum:
    measured: list[ResourceUsage] = [row.usage for row in rows if row.usage is not None]
    return UsageSum(
        tasks=len(measured),
        of=len(rows),
        cpu=sum(usage.cpu for usage in measured),
        ran=sum(usage.run_time for usage in measured),
        memory=max((usage.memory for usage in measured), default=0),
    )
