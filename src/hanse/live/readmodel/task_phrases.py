"""Phrases about tasks: how many of how many, where, why they wait, and what would let them start."""

from typing import Final

from hanse.live.readmodel.cluster_facts import NEVER_FITS, ClusterFit, FitStatus, size_text
from hanse.model.job import JobSpec

MAY_LACK_ROOM: Final = (FitStatus.FULL, FitStatus.UNKNOWN)
"""Fits where free resources may be all that is missing."""


def waiting_clause(spec: JobSpec, group: int, verdicts: list[ClusterFit]) -> tuple[str, str]:
    """Return why tasks of a group wait, as a clause, and the required change, as a sentence.

    No verdict says that there is room.
    """
    part = spec.groups[group]
    reasons = ", ".join([verdict.text for verdict in verdicts])
    if all(verdict.status in NEVER_FITS for verdict in verdicts):
        ask = size_text(part.ask)
        return f", and no cluster can ever run this: {reasons}", _remedy_sentence(spec, verdicts, ask)
    if not any(verdict.status in MAY_LACK_ROOM for verdict in verdicts):
        return (
            f" because no cluster that could run it takes new work now: {reasons}",
            _change_sentence(verdicts),
        )
    missing = f"room for all {part.count} at once" if spec.gang else f"{size_text(part.ask)} free on one node"
    return f" because no cluster has {missing}: {reasons}", _change_sentence(verdicts)


def _change_sentence(verdicts: list[ClusterFit]) -> str:
    changes = [verdict.change for verdict in verdicts if verdict.change]
    return f"Something can start when {' or when '.join(changes)}." if changes else ""


def _remedy_sentence(spec: JobSpec, verdicts: list[ClusterFit], ask: str) -> str:
    """Suggest changes of a job that fits nowhere."""
    statuses = [verdict.status for verdict in verdicts]
    remedies = []
    if FitStatus.NOT_ALLOWED in statuses:
        remedies.append("allow another cluster")
    if FitStatus.UNSUITABLE in statuses:
        remedies.append("loosen its condition")
    if FitStatus.TOO_SMALL in statuses:
        remedies.append("let fewer tasks start together" if spec.gang else f"ask for less than {ask}")
    return f"To let it run, {' or '.join(remedies)} and submit it again, or add nodes."


def tasks_text(count: int) -> str:
    """Format a number of tasks: ``1 task``, ``3 tasks``."""
    return f"{count} task{'' if count == 1 else 's'}"


def agree_in_number(part: str) -> str:
    """Make the verb agree with its number: ``1 wait since noon`` becomes ``1 waits since noon``."""
    if part.startswith("1 "):
        for plural, singular in (("run", "runs"), ("wait", "waits"), ("are", "is"), ("have", "has")):
            if part.startswith(f"1 {plural}"):
                return f"1 {singular}{part[len(plural) + 2 :]}".replace("they wait", "it waits")
    return part


def with_total(part: str, count: int) -> str:
    """Add the total: ``3 run in north`` becomes ``3 of 10 tasks run in north``."""
    number, _, rest = part.partition(" ")
    if int(number) == count:
        return f"The task {rest}" if count == 1 else f"All {count} tasks {rest}"
    return f"{number} of {count} tasks {rest}"
