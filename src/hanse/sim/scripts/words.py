"""Parsers for the vocabulary of golden scripts: times, resources, jobs."""

from typing import Final

from hanse.model.constraint_syntax import ConstraintSyntaxProblem, parse_constraint
from hanse.model.constraints import Value
from hanse.model.ids import MILLISECOND, SECOND, JobId, job_of, parse_job, parse_task
from hanse.model.job import (
    Affinity,
    JobClass,
    JobSpec,
    OnLoss,
    Proximity,
    TaskGroup,
    Together,
    UnreachablePolicy,
)
from hanse.model.resources import Resources
from hanse.sim.workload import payload_of

_SIZES: Final = (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40))


class ScriptError(Exception):
    """Script command that cannot be performed."""


def parse_duration(text: str) -> int:
    """Return a time such as ``5s`` or ``200ms`` in microseconds."""
    for suffix, unit in (("ms", MILLISECOND), ("s", SECOND)):
        if text.endswith(suffix):
            return int(float(text.removesuffix(suffix)) * unit)
    raise ScriptError(f"{text!r} is not a time; write 5s or 200ms")


def parse_value(text: str) -> Value:
    """Return the value of an attribute."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


def parse_resources(text: str) -> Resources:
    """Return the resources of a text such as ``4cpu+16GiB+2gpu+1fpga``."""
    cpu = memory = gpu = 0
    custom = {}
    for part in text.split("+"):
        digits = part[: len(part) - len(part.lstrip("0123456789."))]
        unit = part.removeprefix(digits)
        if unit == "cpu":
            cpu = int(float(digits) * 1_000)
        elif unit == "gpu":
            gpu = int(digits)
        elif unit in dict(_SIZES):
            memory = int(digits) * dict(_SIZES)[unit]
        else:
            custom[unit] = int(digits)
    return Resources(cpu, memory, gpu, tuple(sorted(custom.items())))


def parse_job_spec(number: int, named: dict[str, str]) -> JobSpec:
    """Return the job that the words of ``submit`` describe."""
    where = parse_constraint(named["where"]) if "where" in named else None
    if isinstance(where, ConstraintSyntaxProblem):
        raise ScriptError(where.message)
    affinity: tuple[Affinity, ...] = ()
    for field, apart in (("apart", True), ("near", False)):
        if field in named:
            label, _, scope = named[field].partition(":")
            affinity = (*affinity, Affinity(label, Proximity(scope or "node"), apart))
    least, _, most = named.get("cpu", "1").partition("..")
    extra = "".join(f"+{named[field]}" for field in ("memory", "custom") if field in named)
    gpu = f"+{named['gpu']}gpu" if "gpu" in named else ""
    groups = []
    for position, text in enumerate(named.get("groups", f"main:{named.get('tasks', '1')}").split(",")):
        head, _, needs = text.partition("<")
        name, _, count = head.partition(":")
        groups.append(
            TaskGroup(
                name=name,
                count=int(count or "1"),
                ask=parse_resources(f"{least}cpu{extra}{gpu}"),
                ask_max=parse_resources(f"{most}cpu{extra}{gpu}") if most else None,
                where=where,
                affinity=affinity,
                needs=tuple(needs.split("+")) if needs else (),
                payload=payload_of(number, position),
            )
        )
    return JobSpec(
        groups=tuple(groups),
        name=named.get("name", f"job{number}"),
        gang=named.get("gang") == "yes",
        together=Together(named.get("together", "cluster")),
        spread=named.get("spread", ""),
        spread_max=int(named.get("spread_max", "0")),
        klass=JobClass(named.get("class", "batch")),
        priority=int(named.get("priority", "0")),
        deadline=parse_duration(named["deadline"]) if "deadline" in named else None,
        retries=int(named.get("retries", "0")),
        preemptible=named.get("preemptible") == "yes",
        grace=parse_duration(named.get("grace", "0s")),
        unreachable=UnreachablePolicy(named.get("unreachable", "move")),
        on_loss=OnLoss(named.get("on_loss", "retry")),
        clusters_allowed=tuple(named["allow"].split(",")) if "allow" in named else (),
        labels=tuple(named["labels"].split(",")) if "labels" in named else (),
        after=tuple(parse_job_of(text) for text in named["after"].split(",")) if "after" in named else (),
        client_id=f"submission{number}",
    )


def parse_job_of(text: str) -> JobId:
    """Return the job that a text names, as a job or by one of its tasks."""
    job = parse_job(text)
    if job is None:
        task = parse_task(text)
        if task is None:
            raise ScriptError(f"{text!r} is not a job")
        job = job_of(task)
    return job
