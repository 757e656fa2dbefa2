"""Explanation of a job's state in plain sentences: why it waits, where it runs, how it ended.

The sentences are made from recorded data (states, ends, decisions) and from the broker's current view of the
clusters, and from nothing else. Pure functions: the same facts give the same text.
"""

from datetime import UTC, tzinfo
from typing import Final

from hanse.api.rows import DecisionRow, JobDetail
from hanse.core.broker.job_table import shape_of
from hanse.core.broker.loss_policy import LOST
from hanse.live.readmodel.cluster_facts import (
    ObservedCluster,
    join_words,
)
from hanse.live.readmodel.explanation_facts import (
    TERMINAL,
    EndCount,
    Facts,
    TaskSummary,
    code_text,
    failure_text,
    is_once,
    place_text,
    tasks_text,
)
from hanse.live.readmodel.waiting_reasons import group_sentences
from hanse.model.decision import DecisionKind
from hanse.model.job import UnreachablePolicy

ENDS_SHOWN_MAX: Final = 5
"""Number of different ends that get a sentence each; the others are counted."""


def explain(
    detail: JobDetail,
    tasks: TaskSummary,
    decisions: list[DecisionRow],
    clusters: tuple[ObservedCluster, ...],
    *,
    now: int | None = None,
    zone: tzinfo = UTC,
) -> list[str]:
    """Explain a job in sentences, the most important first.

    ``decisions``: oldest first. With ``now`` (unix microseconds), times of another day include their date, in
    ``zone``.
    """
    facts = Facts(detail, tasks, decisions, clusters, now, zone)
    if detail.row.state in TERMINAL:
        return [
            *_outcome_sentences(facts),
            *_loss_sentences(facts),
            *_size_sentences(facts),
            *_move_sentences(facts),
        ]
    sentences = _copy_sentences(facts)
    if not sentences:
        for number, group in enumerate(detail.groups):
            sentences += group_sentences(facts, number, group)
        sentences += [*_unreachable_sentences(facts), *_failure_sentences(facts)]
    return [
        *sentences,
        *_loss_sentences(facts),
        *_size_sentences(facts),
        *_move_sentences(facts),
        *_deadline_sentences(facts),
        *_cancellation_sentences(facts),
    ]


# --- jobs that have not ended -------------------------------------------------------------------------------


def _copy_sentences(facts: Facts) -> list[str]:
    """Describe a job that another broker owns: this broker knows only the tasks that have ended."""
    row = facts.detail.row
    if not facts.detail.copy:
        return []
    done = row.succeeded + row.failed + row.cancelled
    known = (
        f"{row.owner} owns this job; this broker has only a copy, in which {done} of {tasks_text(row.total)}"
    )
    return [f"{known} {'has' if done == 1 else 'have'} ended. Ask {row.owner} for the other tasks."]


def _unreachable_sentences(facts: Facts) -> list[str]:
    """Describe the clusters that hold tasks of the job and do not answer."""
    task_counts: dict[str, int] = {}
    shape = shape_of(facts.detail.spec, 0, 0)
    for _, name, number in (*facts.summary.placed, *facts.summary.running):
        task_counts[name] = task_counts.get(name, 0) + number
    sentences = []
    for cluster in facts.clusters:
        count = task_counts.get(cluster.name, 0)
        if not count or cluster.reachable:
            continue
        since = f" for {cluster.seen:.0f} s" if cluster.seen is not None else ""
        which = "the task" if count == 1 else f"the {count} tasks"
        fate = f"{which} there will be started elsewhere when no attempt can still run there"
        if facts.detail.spec.unreachable is not UnreachablePolicy.MOVE:
            fate = f"{which} there will wait for it, as the job asks"
        elif is_once(facts):
            fate = f"{which} there will fail: a task that may have begun is not started again (on_loss: fail)"
        elif not any(shape.allows_cluster(other.name) for other in facts.clusters if other is not cluster):
            fate = f"{which} there will wait for it, because the job may run nowhere else"
        sentences.append(f"{cluster.name} has not answered{since}. If it does not answer, {fate}.")
    return sentences


def _failure_sentences(facts: Facts) -> list[str]:
    """Describe tasks that wait for another attempt, and failed tasks of a job that goes on."""
    sentences = []
    for end in facts.summary.ends[:ENDS_SHOWN_MAX]:
        if end.state == "failed":
            sentences.append(failure_text(end, is_once(facts)))
        elif end.state in ("queued", "placed") and end.outcome:
            tasks = tasks_text(end.count)
            fate = _retry_text(end)
            sentences.append(f"{tasks} must start again: the latest attempt{place_text(end)} {fate}.")
    return sentences


def _retry_text(end: EndCount) -> str:
    note = f" ({end.note})" if end.note else ""
    words = {
        "failed": f"failed with {code_text(end.code)}",
        "preempted": "was stopped for more urgent work",
        "lost": "was lost, not by its own fault",
        "cancelled": "was taken back",
        "unstarted": "could not be started, because its runner had no valid lease",
        "succeeded": "succeeded",
    }
    return words.get(end.outcome, end.outcome) + note


def _size_sentences(facts: Facts) -> list[str]:
    """Report the latest size chosen for elastic tasks, by group."""
    latest = {entry.group: entry for entry in facts.decisions if entry.answered is DecisionKind.SIZED}
    several = len(facts.detail.groups) > 1
    return [
        f"Size{f' of group {group}' if several else ''}, chosen{facts.time_clause('at', entry.at)}: "
        f"{entry.reason}."
        for group, entry in latest.items()
    ]


def _move_sentences(facts: Facts) -> list[str]:
    """Report moved and retried attempts, once per reason, with the latest time."""
    latest: dict[tuple[str, str], DecisionRow] = {}
    for entry in facts.decisions:
        if entry.answered in (DecisionKind.MOVED, DecisionKind.RETRIED):
            latest[entry.answered, entry.reason] = entry
    sentences = []
    retries = facts.detail.spec.retries
    for (kind, reason), entry in latest.items():
        when = facts.time_clause("at", entry.at)
        if kind == DecisionKind.RETRIED:
            allowed = f"{retries} {'retry is' if retries == 1 else 'retries are'} allowed for each task"
            sentences.append(f"Started again after {reason}, last{when}; {allowed}.")
        else:
            sentences.append(f"Moved, last{when}: {reason}.")
    return sentences


def _deadline_sentences(facts: Facts) -> list[str]:
    deadline, submitted = facts.detail.spec.deadline, facts.detail.row.submitted
    if deadline is None or submitted is None:
        return []
    return [f"Its deadline is {facts.time_text(submitted + deadline)}; unfinished tasks are then cancelled."]


def _cancellation_sentences(facts: Facts) -> list[str]:
    reason = facts.detail.row.cancel_reason
    if not reason:
        return []
    return [f"It is being cancelled: {reason}. Running tasks get time to save their work."]


# --- jobs that have ended -----------------------------------------------------------------------------------


def _outcome_sentences(facts: Facts) -> list[str]:
    row = facts.detail.row
    when = facts.time_clause("at", row.ended)
    where = (
        f" Its tasks ran in {join_words(list(row.clusters))}." if row.clusters else " None of its tasks ran."
    )
    if row.state == "succeeded":
        return [f"{'The task' if row.total == 1 else f'All {row.total} tasks'} succeeded{when}.{where}"]
    if row.state == "cancelled":
        reason = f": {row.cancel_reason}" if row.cancel_reason else ""
        head = f"It was cancelled{when}{reason}."
    else:
        head = f"It failed{when}: {row.failed} of {tasks_text(row.total)} failed."
    rest = []
    if row.state == "failed" and row.cancelled:
        rest.append(f"{tasks_text(row.cancelled)} {_was_or_were(row.cancelled)} cancelled because of that.")
    if row.succeeded:
        rest.append(f"{tasks_text(row.succeeded)} succeeded.")
    failed = [end for end in facts.summary.ends if end.state == "failed"]
    rest += [failure_text(end, is_once(facts)) for end in failed[:ENDS_SHOWN_MAX]]
    if len(failed) > ENDS_SHOWN_MAX:
        rest.append(f"{sum(end.count for end in failed[ENDS_SHOWN_MAX:])} more failed in other ways.")
    return [head + where, *rest]


def _loss_sentences(facts: Facts) -> list[str]:
    """Report lost attempts that must not start again, once per reason, with the latest time."""
    latest = {
        entry.reason.removeprefix(LOST): entry
        for entry in facts.decisions
        if entry.answered is DecisionKind.ENDED and entry.reason.startswith(LOST)
    }
    return [
        f"Lost, and not started again, last{facts.time_clause('at', entry.at)}: {reason} (on_loss: fail)."
        for reason, entry in latest.items()
    ]


def _was_or_were(count: int) -> str:
    return "was" if count == 1 else "were"
