"""Values of single job fields: readers from the plain data of a file, and writers back to it.

A writer returns data that the reader of the same field reads as the same value.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from hanse.model.constraint_syntax import ConstraintSyntaxProblem, parse_constraint
from hanse.model.constraints import Constraint, normalise
from hanse.model.field_reader import Convert, read_list
from hanse.model.ids import JobId, job_text, parse_job
from hanse.model.job import SpeedUp
from hanse.model.problem import Problem, describe_value, printable_name
from hanse.model.program import read_env
from hanse.model.quantities import Parse, parse_cpus, parse_range, parse_thousandths, parse_whole
from hanse.model.resources import BASE_DIMENSIONS, CUSTOM_KINDS_MAX

CustomAmounts = tuple[tuple[str, int], ...]
"""Custom resources by name, in the order of names."""
Variables = tuple[tuple[str, str], ...]
"""Environment variables, in the order of names."""
_OWN_FIELDS: Final = (*BASE_DIMENSIONS, "cpus", "gpus")
"""Names of resources that have fields of their own."""


def range_reader(parse: Parse) -> Convert[tuple[int, int]]:
    """Return a reader of one quantity or a range; the value is the smallest and the largest."""
    return lambda value, field: parse_range(value, field, parse)


def range_writer(unit: str) -> Callable[[tuple[int, int]], str]:
    """Return a writer of a range in a unit."""

    def write(span: tuple[int, int]) -> str:
        low, high = span
        return f"{low}{unit}" if low == high else f"{low}{unit}..{high}{unit}"

    return write


def write_time(microseconds: int) -> str:
    """Write a time."""
    return f"{microseconds}us"


def read_custom(value: object, field: str) -> tuple[CustomAmounts, CustomAmounts] | Problem:
    """Read the smallest and the largest amounts of custom resources; amounts of zero are left out."""
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
        if name in _OWN_FIELDS:
            return Problem(path, f"'{name}' has a field of its own, beside 'resources'; write it there")
        span = parse_range(amount, path, parse_whole)
        if isinstance(span, Problem):
            return span
        if span[1] == 0:
            return Problem(path, "an amount is at least 1; leave the resource out if none is needed")
        spans[name] = span
    least, most = (
        tuple((name, spans[name][end]) for name in sorted(spans) if spans[name][end]) for end in (0, 1)
    )
    return least, most


def write_custom(span: tuple[CustomAmounts, CustomAmounts]) -> dict[str, str]:
    """Write amounts of custom resources."""
    least, most = dict(span[0]), span[1]
    write = range_writer("")
    return {name: write((least.get(name, 0), amount)) for name, amount in most}


def read_speed_up(value: object, field: str) -> SpeedUp | Problem:
    """Read the points of a speed-up."""
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


def write_speed_up(speed_up: SpeedUp) -> list[list[object]]:
    """Write the points of a speed-up."""
    return [[f"{cpu}m", gpu, f"{speed // 1_000}.{speed % 1_000:03}"] for cpu, gpu, speed in speed_up.points]


def read_where(value: object, field: str) -> Constraint | Problem:
    """Read a condition on nodes, and normalise it."""
    if not isinstance(value, str):
        return Problem(field, f"a condition is a text such as 'zone == \"a\"', not {describe_value(value)}")
    constraint = parse_constraint(value)
    return (
        Problem(field, constraint.message)
        if isinstance(constraint, ConstraintSyntaxProblem)
        else normalise(constraint)
    )


def read_jobs(value: object, field: str) -> tuple[JobId, ...] | Problem:
    """Read a list of job ids."""
    return read_list(value, field, _read_job_id)


def _read_job_id(value: object, field: str) -> JobId | Problem:
    job = parse_job(value) if isinstance(value, str) else None
    return (
        Problem(field, f'a job is written as its id, such as "1-7", not {describe_value(value)}')
        if job is None
        else job
    )


def write_jobs(jobs: tuple[JobId, ...]) -> list[str]:
    """Write a list of job ids."""
    return [job_text(job) for job in jobs]


def read_variables(value: object, field: str) -> Variables | Problem:
    """Read environment variables."""
    env = read_env(value, field)
    return env if isinstance(env, Problem) else tuple(sorted(env.items()))


def merge_variables(outer: Variables, inner: Variables) -> Variables:
    """Add variables to others, which they win over."""
    return tuple(sorted({**dict(outer), **dict(inner)}.items()))


def write_list(values: tuple[Any, ...]) -> list[Any]:
    """Write a list."""
    return list(values)
