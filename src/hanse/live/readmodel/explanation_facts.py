"""Facts from which a job's explanation is made, and the texts for them that several sentences share."""

import signal
from datetime import datetime, tzinfo
from typing import Final

import msgspec

from hanse.api.rows import DecisionRow, JobDetail
from hanse.live.readmodel.cluster_facts import ObservedCluster
from hanse.model.ids import SECOND
from hanse.model.job import OnLoss

TERMINAL: Final = ("succeeded", "failed", "cancelled")
_EXIT_CODES: Final = {
    126: "the program cannot be executed",
    127: "there is no such program",
}
"""Meanings that shells give to exit codes; a code above 128 is 128 plus a signal number."""


class EndCount(msgspec.Struct, frozen=True):
    """Count of tasks whose latest attempts ended in the same way."""

    group: str
    state: str
    """Current state of the tasks."""
    outcome: str
    code: int | None
    note: str
    cluster: str
    count: int


class TaskSummary(msgspec.Struct, frozen=True):
    """Counts of a job's tasks by place, and by the end of their latest attempt."""

    running: tuple[tuple[str, str, int], ...] = ()
    """Group, cluster, number of tasks."""
    placed: tuple[tuple[str, str, int], ...] = ()
    ends: tuple[EndCount, ...] = ()
    """Most frequent first."""


class Facts(msgspec.Struct, frozen=True):
    """Input of the sentences."""

    detail: JobDetail
    summary: TaskSummary
    decisions: list[DecisionRow]
    clusters: tuple[ObservedCluster, ...]
    now: int | None
    zone: tzinfo

    def time_text(self, wall: int | None) -> str:
        """Format a wall-clock time, with the date if it is not today's; empty if the time is unknown."""
        if wall is None:
            return ""
        moment = datetime.fromtimestamp(wall // SECOND, self.zone)
        if self.now is None or datetime.fromtimestamp(self.now // SECOND, self.zone).date() == moment.date():
            return f"{moment:%H:%M:%S}"
        return f"{moment:%Y-%m-%d %H:%M:%S}"

    def time_clause(self, word: str, wall: int | None) -> str:
        """Format a time with a preposition: `` since 14:02:11``; empty if the time is unknown."""
        return f" {word} {self.time_text(wall)}" if wall is not None else ""


def is_once(facts: Facts) -> bool:
    """Return True if a task that may have begun must not start again after a loss."""
    return facts.detail.spec.on_loss is OnLoss.FAIL


def tasks_text(count: int) -> str:
    """Format a number of tasks."""
    return f"{count} task{'' if count == 1 else 's'}"


def place_text(end: EndCount) -> str:
    """Format the cluster of an attempt, as a clause; empty if there is none."""
    return f" in {end.cluster}" if end.cluster else ""


def failure_text(end: EndCount, is_once: bool) -> str:
    """Describe failed tasks in a sentence; for ``is_once`` see ``end_text``."""
    return f"{tasks_text(end.count)} failed{place_text(end)}: {end_text(end, is_once)}."


def end_text(end: EndCount, is_once: bool = False) -> str:
    """Describe the end of an attempt: exit code, its usual meaning, the backend's note. ``is_once``: a
    lost attempt of this job must not be repeated."""
    if not end.outcome:
        return "no details are known"
    if end.outcome == "lost" and is_once:
        text = "it was lost, may have begun, and must not start again (on_loss: fail)"
    elif end.outcome == "lost":
        text = "its attempts were lost too often, not by their own fault"
    else:
        text = code_text(end.code)
    return f"{text}; note of the backend: {end.note}" if end.note else text


def code_text(code: int | None) -> str:
    """Describe an exit code with its usual meaning."""
    if code is None:
        return "no exit code"
    if code < 0:
        return f"killed by {_signal_name(-code)}"
    meaning = _EXIT_CODES.get(code, "")
    if code > 128 and _signal_name(code - 128):
        meaning = f"killed by {_signal_name(code - 128)}"
    return f"exit code {code}" + (f", which usually means: {meaning}" if meaning else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}" if 0 < number < 65 else ""
