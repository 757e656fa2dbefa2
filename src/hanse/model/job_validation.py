"""Rules that a job must keep, checked once on submission. The machines trust what they are given.

``check_job`` names fields of the records (``groups[1].ask.cpu``); ``model.job_parser`` translates them to the
user's form. One pass finds all problems, with bounded work; the first ``problem.PROBLEMS_MAX`` are reported.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

import msgspec

from hanse.model.constraints import constraint_problem
from hanse.model.ids import BROKER_NUMBER_MAX, SECOND, TASKS_PER_JOB_MAX, broker_number
from hanse.model.job import (
    DEADLINE_MAX,
    GRACE_MAX,
    GROUPS_MAX,
    LABELS_MAX,
    NAME_CHARACTERS_MAX,
    PAYLOAD_BYTES_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
    SPEC_BYTES_MAX,
    Affinity,
    JobSpec,
    SpeedUp,
    TaskGroup,
    Together,
)
from hanse.model.problem import Problem, ProblemList, describe_value, printable_name
from hanse.model.resources import (
    BASE_DIMENSIONS,
    CPU_MILLI_MAX,
    CUSTOM_KINDS_MAX,
    CUSTOM_MAX,
    GPUS_MAX,
    MEMORY_BYTES_MAX,
    Resources,
)

CLUSTERS_MAX: Final = 1_024
"""Clusters that a job may allow, forbid or prefer."""
AFTER_MAX: Final = 1_024
"""Jobs that a job may wait for."""
AFFINITIES_MAX: Final = 16
SPEED_UP_POINTS_MAX: Final = 64
SPEED_MAX: Final = 1_000_000
"""Thousandths: a thousand times as fast."""
_CYCLE_SHOWN_MAX: Final = 8
"""Groups of a cycle that are named to the user."""


def check_job(spec: JobSpec) -> tuple[Problem, ...]:
    """Return all problems of a job; empty if it is valid."""
    problems = ProblemList()
    for field, text in (("name", spec.name), ("tenant", spec.tenant)):
        _check_name(problems, field, text)
    if spec.client_id:
        _check_name(problems, "client_id", spec.client_id)
    _check_between(problems, "priority", spec.priority, -PRIORITY_MAX, PRIORITY_MAX)
    _check_between(problems, "retries", spec.retries, 0, RETRIES_MAX)
    if spec.deadline is not None:
        _check_time(problems, "deadline", spec.deadline, 1, DEADLINE_MAX)
    _check_time(problems, "grace", spec.grace, 0, GRACE_MAX)
    if spec.together is not Together.CLUSTER or spec.spread or spec.spread_max:
        _check_topology(problems, spec)
    if spec.labels:
        _check_names(problems, "labels", spec.labels, LABELS_MAX)
    if spec.clusters_allowed or spec.clusters_forbidden or spec.data:
        _check_clusters(problems, spec)
    if spec.after:
        _check_after(problems, spec)
    _check_groups(problems, spec)
    # Encoding is safe only for a spec whose numbers and texts were found to be in range.
    if not problems and len(msgspec.msgpack.encode(spec)) > SPEC_BYTES_MAX:
        problems.add(
            "", f"a job may take at most {SPEC_BYTES_MAX} bytes altogether; move data out of its command"
        )
    return problems.to_list()


def find_name_problem(text: str) -> str | None:
    """Return why this cannot be a name, as a sentence; None if it can."""
    if not text:
        return "a name has at least one character; this one is empty"
    if len(text) > NAME_CHARACTERS_MAX:
        return f"a name has at most {NAME_CHARACTERS_MAX} characters; this one has {len(text)}"
    if text[0] == " " or text[-1] == " ":
        return f"a name neither starts nor ends with a space; {describe_value(text)} does"
    if not text.isprintable():
        return f"a name has printable characters only; {describe_value(text)} has others"
    return None


def suggest_spelling(name: str, known: Sequence[str]) -> str:
    """Return `` (did you mean 'x'?)`` if a known name is spelt alike, else an empty text."""
    close = get_close_matches(name[:NAME_CHARACTERS_MAX], known, n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def _check_name(problems: ProblemList, field: str, text: str, within: str = "") -> None:
    """Check a name. ``within``: path of the field's record; it is used only for a wrong name."""
    rule = find_name_problem(text)
    if rule is not None:
        problems.add(f"{within}.{field}" if within else field, rule)


def _check_names(problems: ProblemList, field: str, names: Sequence[str], most: int) -> None:
    if len(names) > most:
        problems.add(field, f"at most {most} can be listed, not {len(names)}")
    for index, name in enumerate(names[:most]):
        _check_name(problems, f"{field}[{index}]", name)


def _check_between(
    problems: ProblemList, field: str, value: int, least: int, most: int, within: str = ""
) -> None:
    if not least <= value <= most:
        path = f"{within}.{field}" if within else field
        problems.add(path, f"this is from {least} to {most}, not {describe_value(value)}")


def _check_time(problems: ProblemList, field: str, value: int, least: int, most: int) -> None:
    """Check microseconds; the problem names seconds."""
    if value > most:
        problems.add(
            field, f"this is at most {most // SECOND} seconds, not {describe_value(value // SECOND)}"
        )
    elif value < least:
        problems.add(
            field, "a time cannot be negative" if value < 0 else "a time of zero leaves no room for work"
        )


def _check_clusters(problems: ProblemList, spec: JobSpec) -> None:
    _check_names(problems, "clusters_allowed", spec.clusters_allowed, CLUSTERS_MAX)
    _check_names(problems, "clusters_forbidden", spec.clusters_forbidden, CLUSTERS_MAX)
    _check_names(problems, "data", spec.data, CLUSTERS_MAX)
    forbidden = dict.fromkeys(spec.clusters_forbidden[:CLUSTERS_MAX])
    for index, name in enumerate(spec.clusters_allowed[:CLUSTERS_MAX]):
        if name in forbidden:
            problems.add(
                f"clusters_allowed[{index}]",
                f"{describe_value(name)} is both allowed and forbidden; keep it in one list",
            )


def _check_after(problems: ProblemList, spec: JobSpec) -> None:
    if len(spec.after) > AFTER_MAX:
        problems.add("after", f"a job waits for at most {AFTER_MAX} others, not {len(spec.after)}")
    for index, job in enumerate(spec.after[:AFTER_MAX]):
        if not 0 < broker_number(job) <= BROKER_NUMBER_MAX:
            problems.add(f"after[{index}]", f"{describe_value(job)} is not the number of a job")


def _check_topology(problems: ProblemList, spec: JobSpec) -> None:
    """Check the fields that say where the tasks of a gang run."""
    _check_between(problems, "spread_max", spec.spread_max, 0, TASKS_PER_JOB_MAX)
    if spec.spread:
        _check_name(problems, "spread", spec.spread)
    elif spec.spread_max:
        problems.add("spread_max", "this bounds the tasks for each value of 'spread', which is missing")
    if not spec.gang:
        name = "spread" if spec.together is Together.CLUSTER else "together"
        problems.add(name, "this is for tasks that start together; write 'gang: true' beside it")
    elif spec.spread and spec.together is Together.NODE:
        problems.add(
            "spread", "the tasks are together on one node, so nothing can be spread; keep one of both"
        )


def _check_groups(problems: ProblemList, spec: JobSpec) -> None:
    count = len(spec.groups)
    if not 1 <= count <= GROUPS_MAX:
        problems.add("groups", f"a job has 1 to {GROUPS_MAX} groups, not {count}")
    groups = spec.groups[:GROUPS_MAX]
    for index, group in enumerate(groups):
        _check_group(problems, f"groups[{index}]", group)
    if len(groups) > 1 and spec.gang:
        problems.add("gang", f"a gang starts as one and so has exactly one group, not {count}")
    if sum([max(0, group.count) for group in groups]) > TASKS_PER_JOB_MAX:
        problems.add("groups", f"a job has at most {TASKS_PER_JOB_MAX} tasks in all its groups; split it")
    if len(groups) > 1 or (groups and groups[0].needs):
        _check_graph(problems, spec, groups)


def _check_group(problems: ProblemList, path: str, group: TaskGroup) -> None:
    _check_name(problems, "name", group.name, path)
    _check_between(problems, "count", group.count, 1, TASKS_PER_JOB_MAX, path)
    _check_resources(problems, f"{path}.ask", group.ask)
    if not (group.ask.cpu or group.ask.memory or group.ask.gpu or group.ask.custom):
        problems.add(f"{path}.ask", "a task must ask for something; this one asks for nothing at all")
    if group.ask_max is not None:
        _check_resources(problems, f"{path}.ask_max", group.ask_max)
        _check_range(problems, f"{path}.ask_max", group.ask, group.ask_max)
    if group.speed_up is not None:
        _check_speed_up(problems, f"{path}.speed_up", group, group.speed_up)
    if group.where is not None:
        rule = constraint_problem(group.where)
        if rule is not None:
            problems.add(f"{path}.where", rule)
    if group.affinity:
        _check_affinity(problems, f"{path}.affinity", group.affinity)
    if group.duration is not None:
        _check_time(problems, f"{path}.duration", group.duration, 1, DEADLINE_MAX)
    if len(group.payload) > PAYLOAD_BYTES_MAX:
        problems.add(
            f"{path}.payload",
            f"what to run takes at most {PAYLOAD_BYTES_MAX} bytes, not {len(group.payload)}",
        )


def _check_resources(problems: ProblemList, path: str, amounts: Resources) -> None:
    _check_between(problems, "cpu", amounts.cpu, 0, CPU_MILLI_MAX, path)
    _check_between(problems, "memory", amounts.memory, 0, MEMORY_BYTES_MAX, path)
    _check_between(problems, "gpu", amounts.gpu, 0, GPUS_MAX, path)
    if amounts.custom:
        _check_custom(problems, path, amounts)


def _check_custom(problems: ProblemList, path: str, amounts: Resources) -> None:
    names = [name for name, _ in amounts.custom]
    if len(names) > CUSTOM_KINDS_MAX:
        problems.add(f"{path}.custom", f"at most {CUSTOM_KINDS_MAX} kinds can be named, not {len(names)}")
    for name, amount in amounts.custom[:CUSTOM_KINDS_MAX]:
        field = f"{path}.custom.{printable_name(name)}"
        _check_name(problems, field, name)
        if name in BASE_DIMENSIONS:
            problems.add(field, f"'{name}' has a field of its own and cannot be a custom resource")
        _check_between(problems, field, amount, 1, CUSTOM_MAX)
    if any(left >= right for left, right in pairwise(names)):
        problems.add(f"{path}.custom", "custom resources are sorted by name, and each is named once")


def _check_range(problems: ProblemList, path: str, least: Resources, most: Resources) -> None:
    """Check that the maximum of elastic work is at least the minimum, for every resource."""
    most_custom = dict(most.custom)
    pairs = [
        ("cpu", least.cpu, most.cpu),
        ("memory", least.memory, most.memory),
        ("gpu", least.gpu, most.gpu),
        *(
            (f"custom.{printable_name(name)}", amount, most_custom.get(name, 0))
            for name, amount in least.custom[:CUSTOM_KINDS_MAX]
        ),
    ]
    for name, low, high in pairs:
        if low > high:
            problems.add(
                f"{path}.{name}",
                f"the most ({describe_value(high)}) is below the least ({describe_value(low)})",
            )


def _check_speed_up(problems: ProblemList, path: str, group: TaskGroup, speed_up: SpeedUp) -> None:
    if group.ask_max is None:
        problems.add(path, "a speed-up needs a range to choose from, such as cpus 2..16; none is given")
        return
    points = speed_up.points[:SPEED_UP_POINTS_MAX]
    if not 1 <= len(speed_up.points) <= SPEED_UP_POINTS_MAX:
        problems.add(path, f"a speed-up has 1 to {SPEED_UP_POINTS_MAX} points, not {len(speed_up.points)}")
    for index, (cpu, gpu, speed) in enumerate(points):
        inside = group.ask.cpu <= cpu <= group.ask_max.cpu and group.ask.gpu <= gpu <= group.ask_max.gpu
        if not inside:
            problems.add(f"{path}[{index}]", "this point lies outside the range of CPUs and GPUs asked for")
        if not 1 <= speed <= SPEED_MAX:
            most = SPEED_MAX // 1_000
            problems.add(f"{path}[{index}]", f"a speed is above 0 and at most {most} times that of the least")
    sizes = [(cpu, gpu) for cpu, gpu, _ in points]
    if any(left >= right for left, right in pairwise(sizes)):
        problems.add(path, "points are sorted by CPUs, then GPUs, and each size appears once")


def _check_affinity(problems: ProblemList, path: str, wishes: Sequence[Affinity]) -> None:
    if len(wishes) > AFFINITIES_MAX:
        problems.add(path, f"at most {AFFINITIES_MAX} can be listed, not {len(wishes)}")
    seen: dict[tuple[str, str], bool] = {}
    for index, wish in enumerate(wishes[:AFFINITIES_MAX]):
        _check_name(problems, f"{path}[{index}].label", wish.label)
        if seen.setdefault((wish.label, wish.proximity), wish.apart) is not wish.apart:
            problems.add(
                f"{path}[{index}]",
                (
                    f"{describe_value(wish.label)} is wished both near and apart on the "
                    f"same {wish.proximity}; choose one"
                ),
            )


def _check_graph(problems: ProblemList, spec: JobSpec, groups: Sequence[TaskGroup]) -> None:
    """Check that group names are unique, that needed groups exist, and that no group waits for itself."""
    first: dict[str, int] = {}
    for index, group in enumerate(groups):
        if first.setdefault(group.name, index) != index:
            problems.add(
                f"groups[{index}].name",
                (
                    f"{describe_value(group.name)} is already the name of "
                    f"groups[{first[group.name]}]; names are unique"
                ),
            )
    names = tuple(first)
    for index, group in enumerate(groups):
        path = f"groups[{index}].needs"
        if spec.gang and group.needs:
            problems.add(path, "all tasks of a gang start together, so none can wait for another")
        if len(group.needs) > GROUPS_MAX:
            problems.add(path, f"at most {GROUPS_MAX} can be listed, not {len(group.needs)}")
        for place, need in enumerate(group.needs[:GROUPS_MAX]):
            if need == group.name:
                problems.add(f"{path}[{place}]", f"{describe_value(need)} cannot wait for itself")
            elif need not in first:
                hint = "" if problems.is_full else suggest_spelling(need, names)
                problems.add(
                    f"{path}[{place}]", f"there is no group {describe_value(need)} in this job{hint}"
                )
    cycle = _find_cycle(
        [[first[need] for need in group.needs[:GROUPS_MAX] if need in first] for group in groups]
    )
    if cycle:
        shown = [printable_name(groups[index].name) for index in cycle]
        if len(shown) > _CYCLE_SHOWN_MAX:
            shown = [*shown[: _CYCLE_SHOWN_MAX - 1], "...", shown[-1]]
        problems.add("groups", f"groups must not wait for each other in a cycle: {' -> '.join(shown)}")


def _find_cycle(needs: Sequence[Sequence[int]]) -> list[int]:
    """Return a cycle of groups, the first one repeated at the end, or nothing; self-loops are found
    elsewhere.

    The search is depth first in the order written, so the same job always gets the same answer.
    """
    done = [False] * len(needs)
    for root in range(len(needs)):
        path: list[int] = []
        place: dict[int, int] = {}
        waiting = [(root, 0)]
        while waiting:
            group, step = waiting.pop()
            if done[group]:
                continue
            if step == 0:
                place[group] = len(path)
                path.append(group)
            if step == len(needs[group]):
                done[group] = True
                path.pop()
                del place[group]
                continue
            waiting.append((group, step + 1))
            need = needs[group][step]
            if need == group or done[need]:
                continue
            if need in place:
                return [*path[place[need] :], need]
            waiting.append((need, 0))
    return []
