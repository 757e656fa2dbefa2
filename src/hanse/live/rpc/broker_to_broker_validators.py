"""Validators of messages between brokers.

``validation`` gives their purpose and the rule by which bounds are chosen.
"""

from typing import Final

from hanse.core.broker.elastic.duration_stats import KINDS_PER_MESSAGE_MAX, SIZES_MAX, TOTAL_MAX
from hanse.core.broker.failover.replica_updates import REPLICATE_JOBS_MAX
from hanse.core.broker.job_table import CANCELLED, SUCCEEDED
from hanse.core.messaging.message_splitting import ENTRIES_MAX
from hanse.live.rpc import field_validators
from hanse.live.rpc.field_validators import (
    JOB_MAX,
    JOB_MIN,
    MEMBERS_MAX,
    NUMBER_MAX,
    TASK_MAX,
    TASK_MIN,
    is_name,
    is_shard_name,
)
from hanse.live.rpc.validation_context import ValidationContext, Validator, is_known
from hanse.model import messages as m
from hanse.model.duration_stats import DurationStatsUpdate
from hanse.model.ids import INDEX_MASK, TASKS_PER_JOB_MAX, TaskId
from hanse.model.job import NAME_CHARACTERS_MAX
from hanse.model.job_validation import check_job
from hanse.model.messages.duplicate_check import DuplicateQuery, DuplicateReply
from hanse.model.resources import CPU_MILLI_MAX, GPUS_MAX

JOBS_MAX: Final = 1 << 20
"""Jobs listed in one message."""
KIND_CHARACTERS_MAX: Final = 3 * NAME_CHARACTERS_MAX + 2
"""A tenant, a job's name and a group's, with a slash between them."""
WATCHED_MAX: Final = 64
"""Jobs in one query. Each may be answered by a message, so this must stay far below a link's window."""


def _replicate_jobs(body: m.ReplicateJobs, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown broker"
    if len(body.jobs) > REPLICATE_JOBS_MAX:
        return "too many jobs"
    problem = field_validators.shard_term_problem(body.shard, body.term, 0)
    for replica in body.jobs if problem is None else ():
        if not (JOB_MIN <= replica.job <= JOB_MAX and 0 <= replica.age <= NUMBER_MAX):
            return "a job or its age out of range"
        if check_job(replica.spec):
            return "a job that validation refuses"
        count = replica.spec.task_count
        if not 0 <= replica.ends_to_follow <= count:
            return "more ends than a job has tasks"
        for index, state, attempt in replica.ends:
            if not (0 <= index < count and SUCCEEDED <= state <= CANCELLED and 0 <= attempt <= NUMBER_MAX):
                return "a task with an impossible end"
    return problem


def _replica_update(body: m.ReplicaUpdate, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers) or not is_shard_name(body.shard):
        return "an invalid broker or shard"
    for task, state, attempt in body.ends:
        if not (
            TASK_MIN <= task <= TASK_MAX and SUCCEEDED <= state <= CANCELLED and 0 <= attempt <= NUMBER_MAX
        ):
            return "a task with an impossible end"
    if len(body.end_runs) > ENTRIES_MAX:
        return "more ends than fit in one message"
    for task, state, attempt, count in body.end_runs:
        if not (
            TASK_MIN <= task <= TASK_MAX and SUCCEEDED <= state <= CANCELLED and 0 <= attempt <= NUMBER_MAX
        ):
            return "a task with an impossible end"
        if not 0 < count <= TASKS_PER_JOB_MAX - (task & INDEX_MASK):
            return "more tasks than a job has"
    if len(body.columns) > 1 or not all(map(field_validators.is_ends_column, body.columns)):
        return "invalid columns of ends"
    if context.count_tasks is not None and (body.ends or body.end_runs or body.columns):
        tasks = [task for task, _, _ in body.ends]
        tasks += [TaskId(task + count - 1) for task, _, _, count in body.end_runs]
        tasks += [TaskId(task + len(states) - 1) for task, states, _ in body.columns]
        problem = field_validators.task_indices_problem(tasks, context.count_tasks)
        if problem is not None:
            return problem
    return field_validators.jobs_problem(body.cancelled, JOBS_MAX) or field_validators.jobs_problem(
        body.forget, JOBS_MAX
    )


def _ownership_transferred(
    body: m.OwnershipTransferred, context: ValidationContext, source: str
) -> str | None:
    problem = field_validators.shard_term_problem(body.shard, body.term, 0)
    if not is_known(source, context.brokers) or problem is not None:
        return problem or "an unknown broker"
    return field_validators.jobs_problem(body.jobs, JOBS_MAX)


def _watch_jobs(body: m.WatchJobs, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers) or not 0 <= body.round <= NUMBER_MAX:
        return "an invalid broker or round"
    return field_validators.jobs_problem(body.jobs, WATCHED_MAX)


def _job_ended(body: m.JobEnded, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers) or not 0 <= body.round <= NUMBER_MAX:
        return "an invalid broker or round"
    if not (body.state == -1 or SUCCEEDED <= body.state <= CANCELLED):
        return "an invalid state"
    return field_validators.jobs_problem((body.job,), 1)


def _gossip(body: m.Gossip, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers) or len(body.members) > MEMBERS_MAX:
        return "an unknown broker, or too many"
    for member in body.members:
        numbers = (member.epoch, member.beat, member.version)
        if not is_name(member.name) or min(numbers) < 0 or max(numbers) > NUMBER_MAX:
            return "an invalid member"
    return None


def _duration_stats(body: DurationStatsUpdate, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers) or len(body.kinds) > KINDS_PER_MESSAGE_MAX:
        return "an unknown broker, or too many kinds"
    if not (0 <= body.since <= body.until <= NUMBER_MAX and 0 <= body.acked_version <= NUMBER_MAX):
        return "invalid versions"
    for learned in body.kinds:
        if not 0 < learned.version <= body.until or not 0 < len(learned.sizes) <= SIZES_MAX:
            return "an invalid version or number of sizes"
        if not 0 < len(learned.kind) <= KIND_CHARACTERS_MAX or not learned.kind.isprintable():
            return "an invalid kind"
        for seen in learned.sizes:
            if not (0 <= seen.cpu <= CPU_MILLI_MAX and 0 <= seen.gpu <= GPUS_MAX):
                return "an invalid size"
            if not (0 < seen.total <= TOTAL_MAX and 0 < seen.count <= field_validators.COUNT_MAX):
                return "invalid sums"
    return None


def _duplicate_query(body: DuplicateQuery, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown sender"
    fits = JOB_MIN <= body.job <= JOB_MAX and is_name(body.client_id)
    return None if fits else "an invalid job or client id"


def _duplicate_reply(body: DuplicateReply, context: ValidationContext, source: str) -> str | None:
    if not is_known(source, context.brokers):
        return "an unknown sender"
    fits = JOB_MIN <= body.job <= JOB_MAX and (body.known_job == 0 or JOB_MIN <= body.known_job <= JOB_MAX)
    return None if fits else "a job out of range"


BROKER_TO_BROKER_VALIDATORS: Final[dict[type, Validator]] = {
    m.ReplicateJobs: _replicate_jobs,
    m.ReplicaUpdate: _replica_update,
    m.OwnershipTransferred: _ownership_transferred,
    m.WatchJobs: _watch_jobs,
    m.JobEnded: _job_ended,
    m.Gossip: _gossip,
    DurationStatsUpdate: _duration_stats,
    DuplicateQuery: _duplicate_query,
    DuplicateReply: _duplicate_reply,
}
