"""Form of a job that ``hanse retry`` submits: from the job's record, whole or only the unsuccessful tasks."""

from typing import Final

from hanse.api.redaction import HIDDEN
from hanse.client.job_form import Form
from hanse.model.ids import job_text
from hanse.model.job import GROUPS_MAX, JobSpec, TaskGroup
from hanse.model.job_writer import write_group_form, write_job_form
from hanse.model.program import SHELL, Program, decode_program

INDEX_WRAPPER: Final = "/usr/bin/env"
"""Program that sets ``HANSE_TASK`` for a repeated task: a backend sets its own after the job's environment.
"""
_INDEX_VARIABLE: Final = "HANSE_TASK"


def is_divisible(spec: JobSpec) -> bool:
    """Return True if some tasks can be repeated without the others: no needs between them, no gang."""
    return not spec.gang and not any(group.needs for group in spec.groups) and spec.task_count > 1


def retry_form(spec: JobSpec, failed: list[int], succeeded_jobs: tuple[str, ...] = ()) -> Form | str:
    """Return the form of a job that repeats the unsuccessful tasks, or a sentence why there is none.

    ``failed``: indices of the tasks that did not succeed, ascending. A task that is repeated alone finds its
    former index in ``HANSE_TASK``. ``succeeded_jobs``: jobs of ``after`` that have succeeded.
    """
    if any(HIDDEN in dict(command.env).values() for command in _programs(spec)):
        return "its environment has secrets that are hidden from you. Submit the job again from its source."
    if any(command.secret for command in _programs(spec)):
        return "its tasks have keys that only its submitter knows. Submit the job again from its source."
    form = write_job_form(spec)
    form.pop("client_id", None)  # a second submission is another one
    form["after"] = [job for job in map(job_text, spec.after) if job not in succeeded_jobs]
    if not is_divisible(spec) or len(failed) == spec.task_count:
        return form
    if len(failed) > GROUPS_MAX:
        return f"{len(failed)} tasks did not succeed, and at most {GROUPS_MAX} can be repeated alone"
    groups: list[Form] = []
    first = 0
    for group in spec.groups:
        for index in failed:
            if first <= index < first + group.count:
                name = group.name if group.count == 1 else f"{group.name[:100]}-{index}"
                groups.append(_single_task_group(group, index, name))
        first += group.count
    form["groups"] = groups
    return form


def _programs(spec: JobSpec) -> list[Program]:
    programs = [decode_program(group.payload) for group in spec.groups]
    return [command for command in programs if command is not None]


def _single_task_group(group: TaskGroup, index: int, name: str) -> Form:
    """Return one task as a group of its own, with the index that it had."""
    form = {**write_group_form(group), "name": name, "count": 1}
    command = decode_program(group.payload)
    if command is not None:
        is_wrapped = command.argv[0] == INDEX_WRAPPER and command.argv[1].startswith(f"{_INDEX_VARIABLE}=")
        form["command"] = (
            list(command.argv) if is_wrapped else [INDEX_WRAPPER, f"{_INDEX_VARIABLE}={index}", *command.argv]
        )
    return form


def command_text(argv: tuple[str, ...]) -> str:
    """Format a command as a person would type it."""
    from shlex import join  # noqa: PLC0415  only what is shown needs it

    if argv[: len(SHELL)] == SHELL and len(argv) == len(SHELL) + 1:
        return argv[-1]
    return join(argv)
