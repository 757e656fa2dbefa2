"""Sentences about the groups of a live job: where tasks are, why others wait, and what would help."""

from typing import Final

from hanse.api.rows import DecisionRow, GroupDetail
from hanse.live.readmodel.cluster_facts import (
    NEVER_FITS,
    ClusterFit,
    FitStatus,
    assess_fit,
    join_words,
    size_text,
)
from hanse.live.readmodel.explanation_facts import TERMINAL, Facts
from hanse.model.decision import DecisionKind

_MAY_LACK_ROOM: Final = (FitStatus.FULL, FitStatus.UNKNOWN)
"""Fits where free resources may be all that is missing."""


def group_sentences(facts: Facts, number: int, group: GroupDetail) -> list[str]:
    """Describe where the tasks of one group are, and why the others wait."""
    states = group.states
    left = sum(count for state, count in states.items() if state not in TERMINAL)
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
    first, *rest = map(_agree_in_number, parts)
    head = _with_total(first, group.count)
    return [f"{prefix}{'; '.join([head, *rest])}.", *sentences]


def _agree_in_number(part: str) -> str:
    """Make the verb agree with its number: ``1 wait since noon`` becomes ``1 waits since noon``."""
    if part.startswith("1 "):
        for plural, singular in (("run", "runs"), ("wait", "waits"), ("are", "is"), ("have", "has")):
            if part.startswith(f"1 {plural}"):
                return f"1 {singular}{part[len(plural) + 2 :]}".replace("they wait", "it waits")
    return part


def _with_total(part: str, count: int) -> str:
    """Add the total: ``3 run in north`` becomes ``3 of 10 tasks run in north``."""
    number, _, rest = part.partition(" ")
    if int(number) == count:
        return f"The task {rest}" if count == 1 else f"All {count} tasks {rest}"
    return f"{number} of {count} tasks {rest}"


def _places_text(count: int, verb: str, group: str, places: tuple[tuple[str, str, int], ...]) -> str:
    places_of_group = [(cluster, number) for name, cluster, number in places if name == group and cluster]
    if len(places_of_group) == 1 and places_of_group[0][1] == count:
        return f"{count} {verb} in {places_of_group[0][0]}"
    texts = [f"{cluster} ({number})" for cluster, number in places_of_group]
    return f"{count} {verb} in {join_words(texts)}" if texts else f"{count} {verb}"


def _waiting_reason(facts: Facts, number: int, group: GroupDetail) -> tuple[str, str]:
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
    reasons = ", ".join([verdict.text for verdict in verdicts])
    if all(verdict.status in NEVER_FITS for verdict in verdicts):
        ask = size_text(group.ask)
        return f"{since}, and no cluster can ever run this: {reasons}", _remedy_sentence(facts, verdicts, ask)
    if not any(verdict.status in _MAY_LACK_ROOM for verdict in verdicts):
        return (
            f"{since} because no cluster that could run it takes new work now: {reasons}",
            _change_sentence(verdicts),
        )
    gang = facts.detail.spec.gang
    missing = f"room for all {group.count} at once" if gang else f"{size_text(group.ask)} free on one node"
    return f"{since} because no cluster has {missing}: {reasons}", _change_sentence(verdicts)


def _find_latest_reason(facts: Facts, group: str) -> DecisionRow | None:
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


def _change_sentence(verdicts: list[ClusterFit]) -> str:
    changes = [verdict.change for verdict in verdicts if verdict.change]
    return f"Something can start when {' or when '.join(changes)}." if changes else ""


def _remedy_sentence(facts: Facts, verdicts: list[ClusterFit], ask: str) -> str:
    """Suggest changes of a job that fits nowhere."""
    statuses = [verdict.status for verdict in verdicts]
    remedies = []
    if FitStatus.NOT_ALLOWED in statuses:
        remedies.append("allow another cluster")
    if FitStatus.UNSUITABLE in statuses:
        remedies.append("loosen its condition")
    if FitStatus.TOO_SMALL in statuses:
        remedies.append(
            "let fewer tasks start together" if facts.detail.spec.gang else f"ask for less than {ask}"
        )
    return f"To let it run, {' or '.join(remedies)} and submit it again, or add nodes."


def _dependencies_text(facts: Facts, group: GroupDetail) -> str:
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
