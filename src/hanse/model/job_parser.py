"""Parser of jobs: from the plain data of a YAML or JSON file to a checked ``JobSpec``, or a list of problems.

``model.job_fields`` is the table of all fields, which the parser walks; ``docs/reference/job-file.md`` is
generated from it. A job of one group may leave ``groups`` out and write the group's fields at the top. A
field that is null counts as not written. ``trace`` is a W3C traceparent: the job becomes part of that trace,
and its tasks find it in ``TRACEPARENT`` unless ``env`` sets another. Any invalid input results in problems
that name the field and the rule; no input raises.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from hanse.model import job_fields
from hanse.model.field_descriptions import AMOUNT_PREFIX, JobField, JobFormTable, names_of
from hanse.model.field_reader import FieldReader, read_trace, size_problem
from hanse.model.job import GROUPS_MAX, JobSpec, TaskGroup
from hanse.model.job_validation import check_job
from hanse.model.problem import PROBLEMS_MAX, Problem, ProblemList, describe_value
from hanse.model.program import Program, decode_program, encode_program
from hanse.model.quantities import parse_bytes, parse_cpus, parse_duration
from hanse.model.resources import Resources

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

_NO_PROGRAM: Final = Program(())
_ONE_TASK: Final = TaskGroup()
"""Group whose sizes a task has that names none."""
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
    table = job_fields.TABLE
    problems = ProblemList()
    fields = FieldReader.from_value(data, "", table.top_names, problems)
    if fields is None:
        return problems.to_list()
    grouped = fields.has_field("groups")
    groups = _read_groups(fields, table) if grouped else (_read_only_group(fields, table),)
    spec = JobSpec(groups=groups, **_read_rows(fields, table.job))
    if problems:
        return problems.to_list()
    found = check_job(spec)
    return tuple(Problem(_user_path(problem.field, grouped), problem.rule) for problem in found) or spec


def _user_path(path: str, grouped: bool) -> str:
    """Translate a path in the records to the path in the user's form."""
    for pattern, name in _translations(job_fields.TABLE):
        path = re.sub(pattern, name, path)
    return path if grouped else path.removeprefix("groups[0].")


def _translations(table: JobFormTable) -> Iterator[tuple[str, str]]:
    """Yield patterns of paths in the records, each with the name of the field in the user's form."""
    for row in table.amounts:
        yield rf"\bask(_max)?\.{row.attribute.removeprefix(AMOUNT_PREFIX)}\b", row.name
    yield r"\bask$", table.amounts[0].name
    yield r"\bpayload$", table.program[0].name
    for path, row in table.rows():
        if row.attribute and row not in table.amounts and row not in table.program:
            yield rf"^{row.attribute}\b", path


# --- rows --------------------------------------------------------------------------------------------------


def _read_rows(fields: FieldReader, rows: Iterable[JobField]) -> dict[str, Any]:
    """Read the written ones among some fields; return the values by the attribute of the record. Rows that
    are neither read by a converter nor made of others are left to the caller."""
    values: dict[str, Any] = {}
    written = fields.written
    for row in rows:
        value = written.get(row.name)
        if value is None:
            if row.required:
                fields.problems.add(fields.path_of(row.name), row.required)
        elif row.read is not None:
            result = row.read(value, fields.path_of(row.name))
            if isinstance(result, Problem):
                fields.problems.add(result.field, result.rule)
            else:
                values[row.target] = result
        elif row.record is not None:
            values[row.target] = _read_entries(fields, row, row.record)
        elif row.fields:
            inner = FieldReader.from_value(
                value, fields.path_of(row.name), names_of(row.fields), fields.problems
            )
            values |= _read_rows(inner, row.fields) if inner is not None else {}
    return values


def _read_entries(fields: FieldReader, row: JobField, record: type[msgspec.Struct]) -> tuple[Any, ...]:
    """Read a list of mappings as records; invalid ones are noted and left out."""
    value, path = fields.raw_value(row.name), fields.path_of(row.name)
    if not isinstance(value, list | tuple):
        example = row.example.partition(": ")[2]
        fields.problems.add(path, f"this is a list such as {example}, not {describe_value(value)}")
        return ()
    entries: list[Any] = []
    for index, item in enumerate(value):
        entry = FieldReader.from_value(item, f"{path}[{index}]", names_of(row.fields), fields.problems)
        if entry is None:
            continue
        values = _read_rows(entry, row.fields)
        if all(part.target in values for part in row.fields if part.required):
            entries.append(record(**values))
    return tuple(entries)


# --- groups ------------------------------------------------------------------------------------------------


def _read_only_group(fields: FieldReader, table: JobFormTable) -> TaskGroup:
    """Read the short form: the group's fields stand at the top, and the name is the job's."""
    if fields.has_field("needs"):
        fields.problems.add(
            "needs", "this names other groups of the job, and there are none; write them under 'groups'"
        )
    return _read_group(fields, table, _ONE_TASK.name, _trace_environment(fields))


def _read_groups(fields: FieldReader, table: JobFormTable) -> tuple[TaskGroup, ...]:
    value, problems = fields.raw_value("groups"), fields.problems
    for row in table.top_of_group:
        if fields.has_field(row.name):
            problems.add(row.name, f"with 'groups', '{row.name}' belongs to a group; move it into one")
    if not isinstance(value, list | tuple):
        problems.add("groups", f"this is a list of groups, not {describe_value(value)}")
        return ()
    if not 1 <= len(value) <= GROUPS_MAX:
        problems.add("groups", f"a job has 1 to {GROUPS_MAX} groups, not {len(value)}")
        return ()
    inherited = _read_program(fields, table, _trace_environment(fields))
    groups: list[TaskGroup] = []
    for index, item in enumerate(value):
        group = FieldReader.from_value(item, f"groups[{index}]", table.entry_names, problems)
        if group is not None:
            name = _read_rows(group, (table.group_name,)).get("name", _ONE_TASK.name)
            groups.append(_read_group(group, table, name, inherited))
    return tuple(groups)


def _trace_environment(fields: FieldReader) -> Program:
    """Return the initial program of every group: the job's trace as an environment variable. (An invalid
    trace is reported where the job's field is read.)"""
    if not fields.has_field("trace"):
        return _NO_PROGRAM
    parent = read_trace(fields.raw_value("trace"), "")
    return Program((), ((_TRACE_VARIABLE, parent),)) if isinstance(parent, str) else _NO_PROGRAM


def _read_group(fields: FieldReader, table: JobFormTable, name: str, inherited: Program) -> TaskGroup:
    """Read one group; ``inherited`` holds the job's own command, environment and directory."""
    ask, ask_max = _read_ask(fields, table)
    return TaskGroup(
        name=name,
        ask=ask,
        ask_max=None if ask == ask_max else ask_max,
        payload=_read_payload(fields, table, inherited),
        **_read_rows(fields, table.values),
    )


def _read_ask(fields: FieldReader, table: JobFormTable) -> tuple[Resources, Resources]:
    """Read the minimum and maximum of every resource; equal if no range is written."""
    spans = _read_rows(fields, table.amounts)
    if not spans:
        return _ONE_TASK.ask, _ONE_TASK.ask
    least, most = (
        msgspec.structs.replace(
            _ONE_TASK.ask,
            **{target.removeprefix(AMOUNT_PREFIX): span[end] for target, span in spans.items()},
        )
        for end in (0, 1)
    )
    return least, most


def _read_payload(fields: FieldReader, table: JobFormTable, inherited: Program) -> bytes:
    """Encode the group's program; empty if neither the group nor the job has one."""
    program = _read_program(fields, table, inherited)
    if program.argv:
        return encode_program(program)
    command, *others = table.program
    for row in others:
        if fields.has_field(row.name) and not fields.has_field(command.name):
            fields.problems.add(fields.path_of(row.name), f"'{row.name}' is for a command, and there is none")
    return b""


def _read_program(fields: FieldReader, table: JobFormTable, inherited: Program) -> Program:
    """Read the program fields written here; take the others from ``inherited``."""
    values = _read_rows(fields, table.program)
    for row in table.program:
        if row.merge is not None and row.target in values:
            values[row.target] = row.merge(getattr(inherited, row.target), values[row.target])
    return msgspec.structs.replace(inherited, **values) if values else inherited
