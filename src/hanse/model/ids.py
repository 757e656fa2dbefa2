"""Ids: typed names and numbers of brokers, clusters, runners, jobs and tasks, which mypy keeps apart.

Brokers, clusters and runners have short names that people choose; jobs and tasks have 64-bit numbers, because
they live in integer columns. A job number contains the number of the broker that accepted it, so two brokers
never create the same one, and it stays the same after a takeover.
"""

from typing import Final, NewType

BrokerId = NewType("BrokerId", str)
ClusterId = NewType("ClusterId", str)
RunnerId = NewType("RunnerId", str)
JobId = NewType("JobId", int)
"""``broker number << 32 | serial``: at most 1,023 brokers, 2**32 - 1 jobs each."""
TaskId = NewType("TaskId", int)
"""``job << 20 | index``: a task of a job; fits a signed 64-bit column."""
NodeIndex = NewType("NodeIndex", int)
"""Position of a node in its cluster's columns."""
Instant = int
"""Time on a machine's own clock in microseconds. Comparable only with other instants of the same machine."""

SERIAL_BITS: Final = 32
INDEX_BITS: Final = 20
BROKER_NUMBER_MAX: Final = (1 << 10) - 1
TASKS_PER_JOB_MAX: Final = 1 << INDEX_BITS
INDEX_MASK: Final = TASKS_PER_JOB_MAX - 1
_DIGITS_MAX: Final = len(str((1 << SERIAL_BITS) - 1))

MICROSECOND: Final = 1
MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND


def job_id(broker_number: int, serial: int) -> JobId:
    """Return the id of the ``serial``-th job that a broker accepted."""
    assert 0 < broker_number <= BROKER_NUMBER_MAX
    assert 0 <= serial < 1 << SERIAL_BITS
    return JobId(broker_number << SERIAL_BITS | serial)


def broker_number(job: JobId) -> int:
    """Return the number of the broker that first accepted this job."""
    return job >> SERIAL_BITS


def task_id(job: JobId, index: int) -> TaskId:
    """Return the id of the ``index``-th task of a job."""
    return TaskId(job << INDEX_BITS | index)


def job_of(task: TaskId) -> JobId:
    """Return the job a task belongs to."""
    return JobId(task >> INDEX_BITS)


def index_of(task: TaskId) -> int:
    """Return a task's position in its job."""
    return task & INDEX_MASK


def job_text(job: JobId) -> str:
    """Return a job's text form, ``2-17``: broker number and serial."""
    return f"{job >> SERIAL_BITS}-{job & ((1 << SERIAL_BITS) - 1)}"


def task_text(task: TaskId) -> str:
    """Return a task's text form, ``2-17.3``."""
    return f"{job_text(job_of(task))}.{index_of(task)}"


def parse_job(text: str) -> JobId | None:
    """Parse the result of ``job_text``; None for anything else (so ``02-17`` is no job)."""
    left, dash, right = text.partition("-")
    number, serial = _parse_number(left), _parse_number(right)
    if not dash or number is None or serial is None:
        return None
    if not 0 < number <= BROKER_NUMBER_MAX or serial >= 1 << SERIAL_BITS:
        return None
    return job_id(number, serial)


def parse_task(text: str) -> TaskId | None:
    """Parse the result of ``task_text``; None for anything else."""
    left, dot, right = text.rpartition(".")
    job, index = parse_job(left), _parse_number(right)
    if not dot or job is None or index is None or index >= TASKS_PER_JOB_MAX:
        return None
    return task_id(job, index)


def _parse_number(text: str) -> int | None:
    """Parse plain digits as we print them; a text longer than any of our numbers is refused first."""
    if not 0 < len(text) <= _DIGITS_MAX or not (text.isascii() and text.isdigit()):
        return None
    return None if text[0] == "0" and text != "0" else int(text)


ShardId = str
"""Id of the jobs that a broker has accepted, as one unit of takeover: ``broker#generation``."""
