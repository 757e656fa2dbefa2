"""Names of Hanse's jobs in Slurm: tasks and runner. A name alone identifies a job.

Slurm can forget a job that it acknowledged and give its number to a job of others; a name stays with its job.
A name is ``hanse:CLUSTER:INSTANCE:TASKS``. The instance is drawn once for a runner's directory, so two
leagues on one Slurm cannot take each other's jobs for their own. The tasks are in the order of the elements
of an array: ``2-17.3#1`` is attempt 1 of task 2-17.3, ``2-17.3..9#1`` stands for seven tasks, ``+`` is in
between.
"""

from typing import Final

from hanse.model.ids import (
    TASKS_PER_JOB_MAX,
    TaskId,
    index_of,
    job_of,
    job_text,
    parse_task,
    task_id,
    task_text,
)

AttemptId = tuple[TaskId, int]
NAME_WORD: Final = "hanse"
TASKS_CHARACTERS_MAX: Final = 200
"""Characters of the tasks in a name: more of them go into another job."""
ATTEMPT_DIGITS_MAX: Final = 18


def name_prefix(cluster: str, instance: str) -> str:
    """Return the prefix of the names of one runner's jobs."""
    return f"{NAME_WORD}:{cluster}:{instance}:"


def format_tasks(keys: list[AttemptId]) -> str:
    """Return the tasks of a job as text, in order."""
    words: list[str] = []
    at = 0
    while at < len(keys):
        (task, attempt), last = keys[at], at
        while (
            last + 1 < len(keys)
            and keys[last + 1] == (keys[last][0] + 1, attempt)
            and job_of(keys[last + 1][0]) == job_of(task)
        ):
            last += 1
        until = f"..{index_of(keys[last][0])}" if last > at else ""
        words.append(f"{task_text(task)}{until}#{attempt}")
        at = last + 1
    return "+".join(words)


def parse_tasks(text: str) -> tuple[AttemptId, ...] | None:
    """Parse the text of ``format_tasks``; return None for anything else."""
    keys: list[AttemptId] = []
    for word in text.split("+"):
        span, mark, number = word.partition("#")
        first_text, dots, last_text = span.partition("..")
        first = parse_task(first_text)
        attempt = _parse_number(number)
        last = _parse_number(last_text) if dots else first and index_of(first)
        if first is None or not mark or attempt is None or last is None:
            return None
        if not index_of(first) <= last < TASKS_PER_JOB_MAX:
            return None
        job = job_of(first)
        keys += [(task_id(job, index), attempt) for index in range(index_of(first), last + 1)]
    return tuple(keys)


def _parse_number(text: str) -> int | None:
    good = 0 < len(text) <= ATTEMPT_DIGITS_MAX and text.isascii() and text.isdigit()
    return int(text) if good else None


def split_tasks(keys: list[AttemptId], count_max: int) -> list[list[AttemptId]]:
    """Split tasks into jobs: each with at most ``count_max``, and with a name that is not too long."""
    found: list[list[AttemptId]] = []
    begin = 0
    while begin < len(keys):
        count = min(count_max, len(keys) - begin)
        while count > 1 and len(format_tasks(keys[begin : begin + count])) > TASKS_CHARACTERS_MAX:
            count = (count + 1) // 2
        found.append(keys[begin : begin + count])
        begin += count
    return found


def job_comment(keys: list[AttemptId]) -> str:
    """Return a job's comment, for people."""
    more = f" and {len(keys) - 1} more tasks" if len(keys) > 1 else ""
    task, attempt = keys[0]
    return f"Hanse job {job_text(job_of(task))}, task {index_of(task)}, attempt {attempt}{more}"
