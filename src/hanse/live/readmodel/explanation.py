"""Explanation of a job's state in plain sentences: why it waits, where it runs, how it ended.

The sentences are made from recorded data (states, ends, decisions) and from the broker's current view of the
clusters, and from nothing else. Pure functions: the same facts give the same text.
"""

import signal
from datetime import UTC, datetime, tzinfo
from typing import Final

import msgspec

from hanse.api.row_records import DecisionRow, GroupDetail, JobDetail
from hanse.core.broker.job_table import shape_of
from hanse.core.broker.loss_policy import LOST
from hanse.live.readmodel.cluster_facts import (
    FitStatus,
    ObservedCluster,
    assess_fit,
    join_words,
)
from hanse.live.readmodel.task_phrases import agree_in_number, tasks_text, waiting_clause, with_total
from hanse.model.decision_record import DecisionKind
from hanse.model.ids import SECOND
from hanse.model.job import OnLoss, UnreachablePolicy

ENDS_SHOWN_MAX: Final = 5
"""Number of different ends that get a sentence each; the others are counted."""
_TERMINAL: Final = ("succeeded", "failed", "cancelled")
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


class _Facts(msgspec.Struct, frozen=True):
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
    facts = _Facts(detail, tasks, decisions, clusters, now, zone)
    if detail.row.state in _TERMINAL:
        return [
            *_outcome_sentences(facts),
            *_loss_sentences(facts),
            *_size_sentences(facts),
            *_move_sentences(facts),
        ]
    sentences = _copy_sentences(facts)
    if not sentences:
        for number, group in enumerate(detail.groups):
            sentences += _group_sentences(facts, number, group)
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


def _copy_sentences(facts: _Facts) -> list[str]:
    """Describe a job that another broker owns: this broker knows only the tasks that have ended."""
    row = facts.detail.row
    if not facts.detail.copy:
        return []
    done = row.succeeded + row.failed + row.cancelled
    known = (
        f"{row.owner} owns this job; this broker has only a copy, in which {done} of {tasks_text(row.total)}"
    )
    return [f"{known} {'has' if done == 1 else 'have'} ended. Ask {row.owner} for the other tasks."]


def _group_sentences(facts: _Facts, number: int, group: GroupDetail) -> list[str]:
    """Describe where the tasks of one group are, and why the others wait."""
    states = group.states
    left = sum(count for state, count in states.items() if state not in _TERMINAL)
    if not left:
        return []
    prefix = f"Group {group.name}: " if len(facts.detail.groups) > 1 else ""
    parts: list[str] = []
    for state, verb in (("running", "run"), ("placed", "are placed")):
        if states.get(state):
            places = facts.summary.running if state == "running" else facts.summary.placed
            parts.append(_places_text(states[state], verb, group.name, places))
    if states.get("succeeded"):
        parts.append(f"{states['succeeded']} have succeeded")
    sentences: list[str] = []
    if states.get("queued"):
        clause, change = _waiting_reason(facts, number, group)
        parts.append(f"{states['queued']} wait{clause}")
        if change:
            sentences.append(change)
    if states.get("blocked"):
        parts.append(f"{states['blocked']} are blocked: they wait for {_dependencies_text(facts, group)}")
    first, *rest = map(agree_in_number, parts)
    head = with_total(first, group.count)
    return [f"{prefix}{'; '.join([head, *rest])}.", *sentences]


def _places_text(count: int, verb: str, group: str, places: tuple[tuple[str, str, int], ...]) -> str:
    places_of_group = [(cluster, number) for name, cluster, number in places if name == group and cluster]
    if len(places_of_group) == 1 and places_of_group[0][1] == count:
        return f"{count} {verb} in {places_of_group[0][0]}"
    texts = [f"{cluster} ({number})" for cluster, number in places_of_group]
    return f"{count} {verb} in {join_words(texts)}" if texts else f"{count} {verb}"


def _waiting_reason(facts: _Facts, number: int, group: GroupDetail) -> tuple[str, str]:
    """Return the reason why queued tasks wait, as a clause, and the required change, as a sentence."""
    decision = _find_latest_reason(facts, group.name)
    since = facts.time_clause("since", decision.at) if decision is not None else ""
    verdicts = [assess_fit(facts.detail.spec, number, cluster) for cluster in facts.clusters]
    if not verdicts:
        return since + (f"; latest reason: {decision.reason}" if decision is not None else ""), ""
    room = [verdict for verdict in verdicts if verdict.status is FitStatus.ROOM]
    if room:
        where = join_words([f"{verdict.cluster} for {verdict.slots}" for verdict in room])
        reason = f"; latest reason: {decision.reason}" if decision is not None else ""
        others = facts.detail.spec.groups[number].affinity
        wish = ", but its affinity to other jobs' tasks also decides" if others else ""
        return f"{since}{reason}. By the latest data there is room in {where}{wish}", ""
    clause, change = waiting_clause(facts.detail.spec, number, verdicts)
    return f"{since}{clause}", change


def _find_latest_reason(facts: _Facts, group: str) -> DecisionRow | None:
    """Find the decision since which tasks of a group wait."""
    kinds = (DecisionKind.WAITING, DecisionKind.MOVED, DecisionKind.RETRIED)
    latest: DecisionRow | None = None
    for entry in facts.decisions:
        if entry.group != group:
            continue
        if entry.answered in kinds:
            latest = latest if latest is not None and latest.answered is entry.answered else entry
        elif entry.answered is DecisionKind.BLOCKED:
            latest = None
    return latest


def _dependencies_text(facts: _Facts, group: GroupDetail) -> str:
    """List the jobs and groups that a blocked group waits for."""
    parts = []
    for job, state in facts.detail.after:
        if state != "succeeded":
            parts.append(f"job {job} ({state or 'unknown to this broker'})")
    by_name = {part.name: part for part in facts.detail.groups}
    for need in group.needs:
        states = by_name[need].states
        if states.get("succeeded", 0) < by_name[need].count:
            counts = ", ".join(f"{count} {state}" for state, count in states.items())
            parts.append(f"group {need} ({counts})")
    return join_words(parts) or "something that has just succeeded"


def _unreachable_sentences(facts: _Facts) -> list[str]:
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
        elif _is_once(facts):
            fate = f"{which} there will fail: a task that may have begun is not started again (on_loss: fail)"
        elif not any(shape.allows_cluster(other.name) for other in facts.clusters if other is not cluster):
            fate = f"{which} there will wait for it, because the job may run nowhere else"
        sentences.append(f"{cluster.name} has not answered{since}. If it does not answer, {fate}.")
    return sentences


def _failure_sentences(facts: _Facts) -> list[str]:
    """Describe tasks that wait for another attempt, and failed tasks of a job that goes on."""
    sentences = []
    for end in facts.summary.ends[:ENDS_SHOWN_MAX]:
        if end.state == "failed":
            sentences.append(
                f"{tasks_text(end.count)} failed{_place(end)}: {end_text(end, _is_once(facts))}."
            )
        elif end.state in ("queued", "placed") and end.outcome:
            sentences.append(
                f"{tasks_text(end.count)} must start again: "
                f"the latest attempt{_place(end)} {_retry_text(end)}."
            )
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


def _size_sentences(facts: _Facts) -> list[str]:
    """Report the latest size chosen for elastic tasks, by group."""
    latest = {entry.group: entry for entry in facts.decisions if entry.answered is DecisionKind.SIZED}
    several = len(facts.detail.groups) > 1
    return [
        f"Size{f' of group {group}' if several else ''}, chosen{facts.time_clause('at', entry.at)}: "
        f"{entry.reason}."
        for group, entry in latest.items()
    ]


def _move_sentences(facts: _Facts) -> list[str]:
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


def _deadline_sentences(facts: _Facts) -> list[str]:
    deadline, submitted = facts.detail.spec.deadline, facts.detail.row.submitted
    if deadline is None or submitted is None:
        return []
    return [f"Its deadline is {facts.time_text(submitted + deadline)}; unfinished tasks are then cancelled."]


def _cancellation_sentences(facts: _Facts) -> list[str]:
    reason = facts.detail.row.cancel_reason
    if not reason:
        return []
    return [f"It is being cancelled: {reason}. Running tasks get time to save their work."]


# --- jobs that have ended -----------------------------------------------------------------------------------


def _outcome_sentences(facts: _Facts) -> list[str]:
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
    for end in failed[:ENDS_SHOWN_MAX]:
        rest.append(f"{tasks_text(end.count)} failed{_place(end)}: {end_text(end, _is_once(facts))}.")  # noqa: PERF401 - same form as the others
    if len(failed) > ENDS_SHOWN_MAX:
        rest.append(f"{sum(end.count for end in failed[ENDS_SHOWN_MAX:])} more failed in other ways.")
    return [head + where, *rest]


def _is_once(facts: _Facts) -> bool:
    """Return True if a task that may have begun must not start again after a loss."""
    return facts.detail.spec.on_loss is OnLoss.FAIL


def _loss_sentences(facts: _Facts) -> list[str]:
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


def _place(end: EndCount) -> str:
    return f" in {end.cluster}" if end.cluster else ""


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
