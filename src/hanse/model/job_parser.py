"""Parser of jobs: from the plain data of a YAML or JSON file to a checked ``JobSpec``, or a list of problems.

``model.form_fields`` is the table of all fields; ``docs/reference/job-file.md`` is generated from it. A job
of one group may leave ``groups`` out and write the group's fields at the top. A field that is null counts as
not written. ``trace`` is a W3C traceparent: the job becomes part of that trace, and its tasks find it in
``TRACEPARENT`` unless ``env`` sets another. Any invalid input results in problems that name the field and the
rule; no input raises.
"""

import re
from collections.abc import Mapping
from typing import Final

from hanse.model.constraint_syntax import ConstraintSyntaxProblem, parse_constraint
from hanse.model.constraints import Constraint, normalise
from hanse.model.field_reader import (
    FieldReader,
    choice_reader,
    read_flag,
    read_integer,
    read_list,
    read_text,
    read_texts,
    read_trace,
    size_problem,
)
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
    Proximity,
    SpeedUp,
    TaskGroup,
    UnreachablePolicy,
)
from hanse.model.job_validation import check_job
from hanse.model.problem import PROBLEMS_MAX, Problem, ProblemList, describe_value, printable_name
from hanse.model.program import (
    Program,
    decode_program,
    encode_program,
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
    "Problem",
    "Program",
    "check_job",
    "decode_program",
    "encode_program",
    "parse_bytes",
    "parse_cpus",
    "parse_duration",
    "parse_job_form",
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
"""Patterns that translate fields of the records to names of the user's form."""
_Spans = tuple[tuple[str, tuple[int, int]], ...]
"""Custom resources by name, each with its minimum and maximum."""
_NO_PROGRAM: Final = Program(())
_CLASS: Final = choice_reader(JobClass)
_UNREACHABLE: Final = choice_reader(UnreachablePolicy)
_ON_LOSS: Final = choice_reader(OnLoss)
_SCOPE: Final = choice_reader(Proximity)
_TRACE_VARIABLE: Final = "TRACEPARENT"
"""Environment variable in which programs look for the trace that they belong to."""


def parse_job_form(data: object) -> JobSpec | tuple[Problem, ...]:
    """Parse a job from decoded YAML or JSON and check it; return its problems, in the user's words, if it is
    invalid.

    Conditions are normalised, so that jobs that say the same in another order share one record.
    """
    too_large = size_problem(data)
    if too_large is not None:
        return (too_large,)
    problems = ProblemList()
    fields = FieldReader.from_value(data, "", _TOP_FIELDS, problems)
    if fields is None:
        return problems.to_list()
    grouped = fields.has_field("groups")
    groups = _read_groups(fields, problems) if grouped else (_read_only_group(fields, problems),)
    spec = _read_job(fields, groups)
    if problems:
        return problems.to_list()
    found = check_job(spec)
    return tuple(Problem(_user_path(problem.field, grouped), problem.rule) for problem in found) or spec


def _user_path(path: str, grouped: bool) -> str:
    """Translate a path in the records to the path in the user's form."""
    for pattern, name in _RECORD_TO_USER:
        path = pattern.sub(name, path)
    return path if grouped else path.removeprefix("groups[0].")


def _read_job(fields: FieldReader, groups: tuple[TaskGroup, ...]) -> JobSpec:
    allow, deny, prefer = _read_clusters(fields)
    return JobSpec(
        groups=groups,
        name=fields.read("name", read_text, "job"),
        tenant=fields.read("tenant", read_text, "default"),
        gang=fields.read("gang", read_flag, False),
        klass=fields.read("class", _CLASS, JobClass.BATCH),
        priority=fields.read("priority", read_integer, 0),
        deadline=fields.read("deadline", parse_duration, None),
        retries=fields.read("retries", read_integer, 0),
        preemptible=fields.read("preemptible", read_flag, False),
        grace=fields.read("grace", parse_duration, 5 * SECOND),
        unreachable=fields.read("unreachable", _UNREACHABLE, UnreachablePolicy.MOVE),
        on_loss=fields.read("on_loss", _ON_LOSS, OnLoss.RETRY),
        clusters_allowed=allow,
        clusters_forbidden=deny,
        data=prefer,
        labels=fields.read("labels", read_texts, ()),
        after=fields.read("after", _read_jobs, ()),
        client_id=fields.read("client_id", read_text, ""),
        trace=fields.read("trace", read_trace, ""),
    )


def _read_clusters(fields: FieldReader) -> tuple[tuple[str, ...], ...]:
    """Read allowed, forbidden and preferred clusters."""
    if not fields.has_field("clusters"):
        return (), (), ()
    clusters = FieldReader.from_value(
        fields.raw_value("clusters"), "clusters", _CLUSTERS_FIELDS, fields.problems
    )
    return tuple(
        clusters.read(name, read_texts, ()) if clusters is not None else () for name in _CLUSTERS_FIELDS
    )


def _read_jobs(value: object, field: str) -> tuple[JobId, ...] | Problem:
    return read_list(value, field, _read_job_number)


def _read_job_number(value: object, field: str) -> JobId | Problem:
    job = parse_job(value) if isinstance(value, str) else None
    return (
        Problem(field, f'a job is written as its id, such as "1-7", not {describe_value(value)}')
        if job is None
        else job
    )


def _read_only_group(fields: FieldReader, problems: ProblemList) -> TaskGroup:
    """Read the short form: the group's fields stand at the top, and the name is the job's."""
    if fields.has_field("needs"):
        problems.add(
            "needs", "this names other groups of the job, and there are none; write them under 'groups'"
        )
    return _read_group(fields, "main", _trace_environment(fields))


def _read_groups(fields: FieldReader, problems: ProblemList) -> tuple[TaskGroup, ...]:
    value = fields.raw_value("groups")
    for key in (*_ASK_FIELDS, "needs"):
        if fields.has_field(key):
            problems.add(key, f"with 'groups', '{key}' belongs to a group; move it into one")
    if not isinstance(value, list | tuple):
        problems.add("groups", f"this is a list of groups, not {describe_value(value)}")
        return ()
    if not 1 <= len(value) <= GROUPS_MAX:
        problems.add("groups", f"a job has 1 to {GROUPS_MAX} groups, not {len(value)}")
        return ()
    inherited = _read_program(fields, _trace_environment(fields))
    groups: list[TaskGroup] = []
    for index, item in enumerate(value):
        group = FieldReader.from_value(item, f"groups[{index}]", _GROUP_FIELDS, problems)
        if group is not None:
            groups.append(_read_group(group, group.read("name", read_text, "main"), inherited))
    return tuple(groups)


def _trace_environment(fields: FieldReader) -> Program:
    """Return the initial program of every group: the job's trace as an environment variable. (An invalid
    trace is reported where the job's field is read.)"""
    if not fields.has_field("trace"):
        return _NO_PROGRAM
    parent = read_trace(fields.raw_value("trace"), "")
    return Program((), ((_TRACE_VARIABLE, parent),)) if isinstance(parent, str) else _NO_PROGRAM


def _read_group(fields: FieldReader, name: str, inherited: Program) -> TaskGroup:
    """Read one group; ``inherited`` holds the job's own command, environment and directory."""
    ask, ask_max = _read_ask(fields)
    return TaskGroup(
        name=name,
        count=fields.read("count", read_integer, 1),
        ask=ask,
        ask_max=None if ask == ask_max else ask_max,
        speed_up=fields.read("speed_up", _read_speed_up, None),
        where=fields.read("where", _read_where, None),
        affinity=_read_affinity(fields),
        needs=fields.read("needs", read_texts, ()),
        duration=fields.read("duration", parse_duration, None),
        payload=_read_payload(fields, inherited),
    )


def _read_ask(fields: FieldReader) -> tuple[Resources, Resources]:
    """Read the minimum and maximum of every resource; equal if no range is written."""
    cpu = fields.read("cpus", lambda value, field: parse_range(value, field, parse_cpus), (1_000, 1_000))
    memory = fields.read("memory", lambda value, field: parse_range(value, field, parse_bytes), (0, 0))
    gpu = fields.read("gpus", lambda value, field: parse_range(value, field, parse_whole), (0, 0))
    custom: _Spans = fields.read("resources", _read_custom, ())
    least, most = [
        Resources(
            cpu[end], memory[end], gpu[end], tuple([(name, span[end]) for name, span in custom if span[end]])
        )
        for end in (0, 1)
    ]
    return least, most


def _read_custom(value: object, field: str) -> _Spans | Problem:
    if not isinstance(value, Mapping):
        return Problem(
            field, f"this is a mapping of names to amounts, such as {{fpga: 1}}, not {describe_value(value)}"
        )
    if len(value) > CUSTOM_KINDS_MAX:
        return Problem(field, f"at most {CUSTOM_KINDS_MAX} kinds can be named, not {len(value)}")
    spans: dict[str, tuple[int, int]] = {}
    for name, amount in value.items():
        if not isinstance(name, str):
            return Problem(field, f"a resource's name is a word, not {describe_value(name)}")
        path = f"{field}.{printable_name(name)}"
        if name in (*BASE_DIMENSIONS, "cpus", "gpus"):
            return Problem(path, f"'{name}' has a field of its own, beside 'resources'; write it there")
        span = parse_range(amount, path, parse_whole)
        if isinstance(span, Problem):
            return span
        if span[1] == 0:
            return Problem(path, "an amount is at least 1; leave the resource out if none is needed")
        spans[name] = span
    return tuple((name, spans[name]) for name in sorted(spans))


def _read_speed_up(value: object, field: str) -> SpeedUp | Problem:
    points = read_list(value, field, _read_point)
    return points if isinstance(points, Problem) else SpeedUp(points)


def _read_point(value: object, field: str) -> tuple[int, int, int] | Problem:
    if not isinstance(value, list | tuple) or len(value) != 3:
        return Problem(
            field,
            f"a point is a list of CPUs, GPUs and speed, such as [4, 0, 1.8], not {describe_value(value)}",
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


def _read_where(value: object, field: str) -> Constraint | Problem:
    if not isinstance(value, str):
        return Problem(field, f"a condition is a text such as 'zone == \"a\"', not {describe_value(value)}")
    constraint = parse_constraint(value)
    return (
        Problem(field, constraint.message)
        if isinstance(constraint, ConstraintSyntaxProblem)
        else normalise(constraint)
    )


def _read_affinity(fields: FieldReader) -> tuple[Affinity, ...]:
    value, path = fields.raw_value("affinity"), fields.path_of("affinity")
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        fields.problems.add(
            path, f"this is a list such as [{{label: db, apart: true}}], not {describe_value(value)}"
        )
        return ()
    wishes: list[Affinity] = []
    for index, item in enumerate(value):
        wish = FieldReader.from_value(item, f"{path}[{index}]", _AFFINITY_FIELDS, fields.problems)
        if wish is not None:
            if not wish.has_field("label"):
                fields.problems.add(
                    wish.path_of("label"), "this says which label to be near to or apart from; it is missing"
                )
            wishes.append(
                Affinity(
                    label=wish.read("label", read_text, ""),
                    proximity=wish.read("scope", _SCOPE, Proximity.NODE),
                    apart=wish.read("apart", read_flag, False),
                )
            )
    return tuple(wishes)


def _read_payload(fields: FieldReader, inherited: Program) -> bytes:
    """Encode the group's program; empty if neither the group nor the job has one."""
    program = _read_program(fields, inherited)
    if program.argv:
        return encode_program(program)
    for key in ("env", "workdir", "secret"):
        if fields.has_field(key) and not fields.has_field("command"):
            fields.problems.add(fields.path_of(key), f"'{key}' is for a command, and there is none")
    return b""


def _read_program(fields: FieldReader, inherited: Program) -> Program:
    """Read the program fields written here; take the others from ``inherited``."""
    here: dict[str, str] = fields.read("env", read_env, {})
    return Program(
        argv=fields.read("command", read_argv, inherited.argv),
        env=tuple(sorted({**dict(inherited.env), **here}.items())) if here else inherited.env,
        workdir=fields.read("workdir", read_argument, inherited.workdir),
        secret=fields.read("secret", read_secret, inherited.secret),
    )
