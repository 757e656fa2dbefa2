"""The door for jobs: from the plain data of a YAML or JSON file to a checked ``JobSpec``, or what is wrong.

``model.form_fields`` is the table of all fields; ``docs/reference/job-file.md`` is generated from it.
A job of one group may leave ``groups`` out and write the group's fields at the top. A field that is null
counts as not written. ``trace`` is a W3C traceparent: the job becomes part of that trace, and its tasks find
it in ``TRACEPARENT`` unless ``env`` sets another. Anything else is answered with problems that name the field
and the rule: no input makes it raise.
"""

import re
from collections.abc import Mapping
from typing import Final

from hanse.model.constraint_syntax import WhereError, parse
from hanse.model.constraints import Constraint, normalise
from hanse.model.field_reader import Fields, choice, flag, integer, listed, size_problem, text, texts, trace
from hanse.model.form_fields import (
    AFFINITY_FIELDS,
    ASK_FIELDS,
    CLUSTERS_FIELDS,
    COMMAND_FIELDS,
    GROUP_NAME,
    JOB_FIELDS,
    NEEDS,
    names_of,
)
from hanse.model.ids import SECOND, JobId, parse_job
from hanse.model.job import (
    GROUPS_MAX,
    Affinity,
    JobClass,
    JobSpec,
    OnLoss,
    Scope,
    SpeedUp,
    TaskGroup,
    Unreachable,
)
from hanse.model.job_validation import check_job
from hanse.model.problem import PROBLEMS_MAX, Problem, Problems, given, label
from hanse.model.program import (
    Command,
    command_of,
    payload_of,
    read_argument,
    read_argv,
    read_env,
    read_secret,
)
from hanse.model.quantities import (
    parse_bytes,
    parse_cpus,
    parse_duration,
    parse_range,
    parse_thousandths,
    parse_whole,
)
from hanse.model.resources import BASE_DIMENSIONS, CUSTOM_KINDS_MAX, Resources

__all__ = [
    "PROBLEMS_MAX",
    "Command",
    "Problem",
    "check_job",
    "command_of",
    "job_from_data",
    "parse_bytes",
    "parse_cpus",
    "parse_duration",
    "payload_of",
]

_COMMAND_FIELDS: Final = names_of(COMMAND_FIELDS)
_ASK_FIELDS: Final = names_of(ASK_FIELDS)
_GROUP_FIELDS: Final = (GROUP_NAME.name, *_ASK_FIELDS, NEEDS.name, *_COMMAND_FIELDS)
_TOP_FIELDS: Final = (*names_of(JOB_FIELDS), *_ASK_FIELDS, NEEDS.name, *_COMMAND_FIELDS)
_CLUSTERS_FIELDS: Final = names_of(CLUSTERS_FIELDS)
_AFFINITY_FIELDS: Final = names_of(AFFINITY_FIELDS)
_RECORD_TO_USER: Final = (
    (re.compile(r"\bask(_max)?\.cpu$"), "cpus"),
    (re.compile(r"\bask(_max)?\.memory$"), "memory"),
    (re.compile(r"\bask(_max)?\.gpu$"), "gpus"),
    (re.compile(r"\bask(_max)?\.custom\b"), "resources"),
    (re.compile(r"\bask$"), "cpus"),
    (re.compile(r"\bpayload$"), "command"),
    (re.compile(r"^klass$"), "class"),
    (re.compile(r"^clusters_allowed\b"), "clusters.allow"),
    (re.compile(r"^clusters_forbidden\b"), "clusters.deny"),
    (re.compile(r"^data\b"), "clusters.prefer"),
)
"""How the fields of the records are called in the user's form."""
_Spans = tuple[tuple[str, tuple[int, int]], ...]
"""Custom resources by name, each with its least and most."""
_NO_COMMAND: Final = Command(())
_CLASS: Final = choice(JobClass)
_UNREACHABLE: Final = choice(Unreachable)
_ON_LOSS: Final = choice(OnLoss)
_SCOPE: Final = choice(Scope)
_TRACE_VARIABLE: Final = "TRACEPARENT"
"""Where programs look for the trace that they belong to."""


def job_from_data(data: object) -> JobSpec | tuple[Problem, ...]:
    """The job that decoded YAML or JSON describes, checked; or what is wrong with it, in the user's words.

    Conditions are normalised, so that jobs that say the same in another order share one record.
    """
    too_large = size_problem(data)
    if too_large is not None:
        return (too_large,)
    problems = Problems()
    fields = Fields.of(data, "", _TOP_FIELDS, problems)
    if fields is None:
        return problems.all()
    grouped = fields.has("groups")
    groups = _groups(fields, problems) if grouped else (_only_group(fields, problems),)
    spec = _job(fields, groups)
    if problems:
        return problems.all()
    found = check_job(spec)
    return tuple(Problem(_user_path(problem.field, grouped), problem.rule) for problem in found) or spec


def _user_path(path: str, grouped: bool) -> str:
    """A path into the records as the user's form has it."""
    for pattern, name in _RECORD_TO_USER:
        path = pattern.sub(name, path)
    return path if grouped else path.removeprefix("groups[0].")


def _job(fields: Fields, groups: tuple[TaskGroup, ...]) -> JobSpec:
    allow, deny, prefer = _clusters(fields)
    return JobSpec(
        groups=groups,
        name=fields.take("name", text, "job"),
        tenant=fields.take("tenant", text, "default"),
        gang=fields.take("gang", flag, False),
        klass=fields.take("class", _CLASS, JobClass.BATCH),
        priority=fields.take("priority", integer, 0),
        deadline=fields.take("deadline", parse_duration, None),
        retries=fields.take("retries", integer, 0),
        preemptible=fields.take("preemptible", flag, False),
        grace=fields.take("grace", parse_duration, 5 * SECOND),
        unreachable=fields.take("unreachable", _UNREACHABLE, Unreachable.MOVE),
        on_loss=fields.take("on_loss", _ON_LOSS, OnLoss.RETRY),
        clusters_allowed=allow,
        clusters_forbidden=deny,
        data=prefer,
        labels=fields.take("labels", texts, ()),
        after=fields.take("after", _jobs, ()),
        client_id=fields.take("client_id", text, ""),
        trace=fields.take("trace", trace, ""),
    )


def _clusters(fields: Fields) -> tuple[tuple[str, ...], ...]:
    """Allowed, forbidden and preferred clusters."""
    if not fields.has("clusters"):
        return (), (), ()
    clusters = Fields.of(fields.raw("clusters"), "clusters", _CLUSTERS_FIELDS, fields.problems)
    return tuple(clusters.take(name, texts, ()) if clusters is not None else () for name in _CLUSTERS_FIELDS)


def _jobs(value: object, field: str) -> tuple[JobId, ...] | Problem:
    return listed(value, field, _job_number)


def _job_number(value: object, field: str) -> JobId | Problem:
    job = parse_job(value) if isinstance(value, str) else None
    return (
        Problem(field, f'a job is written as it was told, such as "1-7", not {given(value)}')
        if job is None
        else job
    )


def _only_group(fields: Fields, problems: Problems) -> TaskGroup:
    """The short form: the group's fields stand at the top, and the name is the job's."""
    if fields.has("needs"):
        problems.add(
            "needs", "this names other groups of the job, and there are none; write them under 'groups'"
        )
    return _group(fields, "main", _traced(fields))


def _groups(fields: Fields, problems: Problems) -> tuple[TaskGroup, ...]:
    value = fields.raw("groups")
    for key in (*_ASK_FIELDS, "needs"):
        if fields.has(key):
            problems.add(key, f"with 'groups', '{key}' belongs to a group; move it into one")
    if not isinstance(value, list | tuple):
        problems.add("groups", f"this is a list of groups, not {given(value)}")
        return ()
    if not 1 <= len(value) <= GROUPS_MAX:
        problems.add("groups", f"a job has 1 to {GROUPS_MAX} groups, not {len(value)}")
        return ()
    above = _command(fields, _traced(fields))
    groups: list[TaskGroup] = []
    for index, item in enumerate(value):
        group = Fields.of(item, f"groups[{index}]", _GROUP_FIELDS, problems)
        if group is not None:
            groups.append(_group(group, group.take("name", text, "main"), above))
    return tuple(groups)


def _traced(fields: Fields) -> Command:
    """What every command begins with: the job's trace, unless its own environment says another. (A wrong one
    is told where the job's field is read.)"""
    if not fields.has("trace"):
        return _NO_COMMAND
    parent = trace(fields.raw("trace"), "")
    return Command((), ((_TRACE_VARIABLE, parent),)) if isinstance(parent, str) else _NO_COMMAND


def _group(fields: Fields, name: str, above: Command) -> TaskGroup:
    """One group; ``above`` holds the job's own command, environment and directory."""
    ask, ask_max = _ask(fields)
    return TaskGroup(
        name=name,
        count=fields.take("count", integer, 1),
        ask=ask,
        ask_max=None if ask == ask_max else ask_max,
        speed_up=fields.take("speed_up", _speed_up, None),
        where=fields.take("where", _where, None),
        affinity=_affinity(fields),
        needs=fields.take("needs", texts, ()),
        duration=fields.take("duration", parse_duration, None),
        payload=_payload(fields, above),
    )


def _ask(fields: Fields) -> tuple[Resources, Resources]:
    """The least and the most of everything; equal if no range is written."""
    cpu = fields.take("cpus", lambda value, field: parse_range(value, field, parse_cpus), (1_000, 1_000))
    memory = fields.take("memory", lambda value, field: parse_range(value, field, parse_bytes), (0, 0))
    gpu = fields.take("gpus", lambda value, field: parse_range(value, field, parse_whole), (0, 0))
    custom: _Spans = fields.take("resources", _custom, ())
    least, most = [
        Resources(
            cpu[end], memory[end], gpu[end], tuple([(name, span[end]) for name, span in custom if span[end]])
        )
        for end in (0, 1)
    ]
    return least, most


def _custom(value: object, field: str) -> _Spans | Problem:
    if not isinstance(value, Mapping):
        return Problem(
            field, f"this is a mapping of names to amounts, such as {{fpga: 1}}, not {given(value)}"
        )
    if len(value) > CUSTOM_KINDS_MAX:
        return Problem(field, f"at most {CUSTOM_KINDS_MAX} kinds can be named, not {len(value)}")
    spans: dict[str, tuple[int, int]] = {}
    for name, amount in value.items():
        if not isinstance(name, str):
            return Problem(field, f"a resource's name is a word, not {given(name)}")
        path = f"{field}.{label(name)}"
        if name in (*BASE_DIMENSIONS, "cpus", "gpus"):
            return Problem(path, f"'{name}' has a field of its own, beside 'resources'; write it there")
        span = parse_range(amount, path, parse_whole)
        if isinstance(span, Problem):
            return span
        if span[1] == 0:
            return Problem(path, "an amount is at least 1; leave the resource out if none is needed")
        spans[name] = span
    return tuple((name, spans[name]) for name in sorted(spans))


def _speed_up(value: object, field: str) -> SpeedUp | Problem:
    points = listed(value, field, _point)
    return points if isinstance(points, Problem) else SpeedUp(points)


def _point(value: object, field: str) -> tuple[int, int, int] | Problem:
    if not isinstance(value, list | tuple) or len(value) != 3:
        return Problem(
            field, f"a point is a list of CPUs, GPUs and speed, such as [4, 0, 1.8], not {given(value)}"
        )
    cpu, gpu, speed = (
        parse_cpus(value[0], field),
        parse_whole(value[1], field),
        parse_thousandths(value[2], field),
    )
    if isinstance(cpu, Problem):
        return cpu
    if isinstance(gpu, Problem):
        return gpu
    return speed if isinstance(speed, Problem) else (cpu, gpu, speed)


def _where(value: object, field: str) -> Constraint | Problem:
    if not isinstance(value, str):
        return Problem(field, f"a condition is a text such as 'zone == \"a\"', not {given(value)}")
    constraint = parse(value)
    return Problem(field, constraint.message) if isinstance(constraint, WhereError) else normalise(constraint)


def _affinity(fields: Fields) -> tuple[Affinity, ...]:
    value, path = fields.raw("affinity"), fields.path("affinity")
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        fields.problems.add(path, f"this is a list such as [{{label: db, apart: true}}], not {given(value)}")
        return ()
    wishes: list[Affinity] = []
    for index, item in enumerate(value):
        wish = Fields.of(item, f"{path}[{index}]", _AFFINITY_FIELDS, fields.problems)
        if wish is not None:
            if not wish.has("label"):
                fields.problems.add(
                    wish.path("label"), "this says which label to be near to or apart from; it is missing"
                )
            wishes.append(
                Affinity(
                    label=wish.take("label", text, ""),
                    scope=wish.take("scope", _SCOPE, Scope.NODE),
                    apart=wish.take("apart", flag, False),
                )
            )
    return tuple(wishes)


def _payload(fields: Fields, above: Command) -> bytes:
    """The group's command as bytes; none if neither the group nor the job has one."""
    command = _command(fields, above)
    if command.argv:
        return payload_of(command)
    for key in ("env", "workdir", "secret"):
        if fields.has(key) and not fields.has("command"):
            fields.problems.add(fields.path(key), f"'{key}' is for a command, and there is none")
    return b""


def _command(fields: Fields, above: Command) -> Command:
    """What is written here, and what is not from ``above``."""
    here: dict[str, str] = fields.take("env", read_env, {})
    return Command(
        argv=fields.take("command", read_argv, above.argv),
        env=tuple(sorted({**dict(above.env), **here}.items())) if here else above.env,
        workdir=fields.take("workdir", read_argument, above.workdir),
        secret=fields.take("secret", read_secret, above.secret),
    )
