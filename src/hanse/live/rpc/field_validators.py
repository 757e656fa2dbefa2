"""Validators of message fields: numbers, names, amounts, shapes, task batches, ends.

Every function returns the problem in a few words, or None. The types are decoded already: an ``int`` is an
int, but any of 64 bits. The usual case is short: empty tuples and absent options cost one comparison.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from hanse.core.broker.failover.end_columns import is_column
from hanse.model.constraints import constraint_problem
from hanse.model.ids import (
    BROKER_NUMBER_MAX,
    INDEX_BITS,
    INDEX_MASK,
    SERIAL_BITS,
    TASKS_PER_JOB_MAX,
    JobId,
    TaskId,
)
from hanse.model.job import DEADLINE_MAX, GRACE_MAX, GROUPS_MAX, LABELS_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX
from hanse.model.job import NAME_CHARACTERS_MAX as NAME_MAX
from hanse.model.job_validation import AFFINITIES_MAX, CLUSTERS_MAX
from hanse.model.messages import (
    AttemptEnd,
    DemandLine,
    NodePreference,
    QueueKey,
    Shape,
    StartTask,
    TaskBatch,
    WithheldCapacity,
)
from hanse.model.resources import (
    BASE_DIMENSIONS,
    CPU_MILLI_MAX,
    CUSTOM_KINDS_MAX,
    CUSTOM_MAX,
    GPUS_MAX,
    MEMORY_BYTES_MAX,
    Resources,
)
from hanse.policy.node_classes import CLASSES_MAX
from hanse.policy.node_columns import NODES_MAX

NUMBER_MAX: Final = 1 << 62
"""Bound of counters, instants and versions: adding to one keeps it within 64 bits."""
JOB_MIN: Final = 1 << SERIAL_BITS
JOB_MAX: Final = ((BROKER_NUMBER_MAX + 1) << SERIAL_BITS) - 1
TASK_MIN: Final = JOB_MIN << INDEX_BITS
TASK_MAX: Final = ((JOB_MAX + 1) << INDEX_BITS) - 1
INDEX_MAX: Final = TASKS_PER_JOB_MAX - 1
SHARD_CHARACTERS_MAX: Final = 160
"""Length of ``broker#generation``."""
GENERATION_DIGITS_MAX: Final = 18
"""Digits of the generation, so that it fits 64 bits."""
SHARD_NAMES_CACHED_MAX: Final = 4_096
"""Shard names whose result is cached: the same few come with every claim."""
NOTE_CHARACTERS_MAX: Final = 4_096
SHARDS_MAX: Final = 65_536
"""Shards named in one message."""
MEMBERS_MAX: Final = 1_023
"""Brokers of a league: as many as there are numbers for."""
KEY_NUMBERS_MAX: Final = 16
"""Numbers in a queue key."""
COUNT_MAX: Final = 1 << 32
"""Waiting tasks of one line of demand."""
CODE_MAX: Final = 1 << 32
"""Largest exit code, positive or negative."""

TaskCountOf = Callable[[JobId], int | None]
"""Returns the number of tasks of a job, or None for an unknown job."""


def are_within(values: Sequence[int], least: int, most: int) -> bool:
    """True if every number lies in a range."""
    return not values or (min(values) >= least and max(values) <= most)


def is_name(text: str) -> bool:
    """True if this can name a member, a label or a resource."""
    return 0 < len(text) <= NAME_MAX and text.isprintable()


@lru_cache(SHARD_NAMES_CACHED_MAX)
def is_shard_name(text: str) -> bool:
    """True if this can name a shard: a broker and a generation."""
    founder, _, generation = text.rpartition("#")
    digits = generation.isascii() and generation.isdecimal() and len(generation) <= GENERATION_DIGITS_MAX
    return digits and len(text) <= SHARD_CHARACTERS_MAX and is_name(founder)


def are_names(texts: tuple[str, ...], most: int) -> bool:
    """True if these are at most so many names."""
    return not texts or (len(texts) <= most and all(map(is_name, texts)))


def are_shard_names(texts: tuple[str, ...], most: int) -> bool:
    """True if these are at most so many names of shards."""
    return len(texts) <= most and all(map(is_shard_name, texts))


def resources_problem(amounts: Resources) -> str | None:
    """Check amounts: none negative, none above the model's maximum."""
    if not (
        0 <= amounts.cpu <= CPU_MILLI_MAX
        and 0 <= amounts.memory <= MEMORY_BYTES_MAX
        and 0 <= amounts.gpu <= GPUS_MAX
    ):
        return "an amount out of range"
    return _custom(amounts.custom) if amounts.custom else None


def _custom(custom: tuple[tuple[str, int], ...]) -> str | None:
    if len(custom) > CUSTOM_KINDS_MAX:
        return "too many custom resources"
    for name, amount in custom:
        if not is_name(name) or name in BASE_DIMENSIONS or not 1 <= amount <= CUSTOM_MAX:
            return "an invalid custom resource"
    if any(left[0] >= right[0] for left, right in pairwise(custom)):
        return "custom resources out of order"
    return None


def shape_problem(subject: Shape) -> str | None:
    """Check that a shape keeps the rules of job validation."""
    ask = subject.ask
    problem = resources_problem(ask)
    if problem is None and not (ask.cpu or ask.memory or ask.gpu or ask.custom):
        problem = "a task that asks for nothing"
    if problem is None and subject.ask_max is not None:
        problem = resources_problem(subject.ask_max)
        if problem is None and not ask.fits(subject.ask_max):
            problem = "the maximum is below the ask"
    if problem is None and not (
        0 <= subject.gang <= TASKS_PER_JOB_MAX
        and -PRIORITY_MAX <= subject.priority <= PRIORITY_MAX
        and 0 <= subject.kind <= NUMBER_MAX
    ):
        problem = "a gang, a priority or a kind out of range"
    has_spread = subject.spread or subject.spread_max
    if has_spread and not (is_name(subject.spread) and 0 <= subject.spread_max <= TASKS_PER_JOB_MAX):
        problem = problem or "an invalid spread"
    if problem is None and not (
        are_names(subject.labels, LABELS_MAX)
        and are_names(subject.clusters_allowed, CLUSTERS_MAX)
        and are_names(subject.clusters_forbidden, CLUSTERS_MAX)
    ):
        problem = "invalid labels or clusters"
    if problem is None and subject.affinity:
        affinities = subject.affinity
        if len(affinities) > AFFINITIES_MAX or not all(is_name(affinity.label) for affinity in affinities):
            problem = "invalid affinities"
    if problem is None and subject.where is not None and constraint_problem(subject.where) is not None:
        problem = "an invalid condition"
    return problem


def task_batch_problem(subject: TaskBatch) -> str | None:
    """Check tasks of one group: parallel columns, no task twice, a size that the shape allows."""
    tasks, attempts, nodes = subject.tasks, subject.attempts, subject.nodes
    count = len(tasks)
    if not 0 < count == len(attempts) == len(nodes) <= TASKS_PER_JOB_MAX:
        return "columns of different lengths"
    if count == 1:
        fits = 0 <= tasks[0] <= INDEX_MAX and 1 <= attempts[0] <= NUMBER_MAX and -1 <= nodes[0] < NODES_MAX
    else:
        fits = (
            len(frozenset(tasks)) == count
            and are_within(tasks, 0, INDEX_MAX)
            and are_within(attempts, 1, NUMBER_MAX)
            and are_within(nodes, -1, NODES_MAX - 1)
        )
    if not fits:
        return "a task, an attempt or a node out of range, or a task twice"
    if not (
        JOB_MIN <= subject.job <= JOB_MAX
        and 0 <= subject.group < GROUPS_MAX
        and 0 <= subject.lease <= NUMBER_MAX
    ):
        return "a job, a group or a lease out of range"
    template = subject.template
    if not (
        is_shard_name(template.shard)
        and len(template.payload) <= PAYLOAD_BYTES_MAX
        and 0 <= template.grace <= GRACE_MAX
        and (template.duration is None or 1 <= template.duration <= DEADLINE_MAX)
        and is_name(template.group)
        and template.first >= 0 <= template.count <= TASKS_PER_JOB_MAX - template.first
    ):
        return "an invalid task template"
    return (
        shape_problem(template.shape)
        or _size(subject.size, template.shape)
        or preference_problem(subject.preference)
    )


def _size(size: Resources, of: Shape) -> str | None:
    """Check that a size is the ask or, for elastic work, at most the maximum."""
    if size == of.ask:
        return None
    problem = resources_problem(size)
    if problem is None and (of.ask_max is None or not of.ask.fits(size) or not size.fits(of.ask_max)):
        problem = "a size outside what was asked for"
    return problem


def is_key(key: QueueKey) -> bool:
    """True if this can be a queue key."""
    return len(key) <= KEY_NUMBERS_MAX and are_within(key, -NUMBER_MAX, NUMBER_MAX)


def preference_problem(preference: NodePreference | None) -> str | None:
    """Check estimates by node class."""
    if preference is None:
        return None
    costs = preference.costs
    if not 0 < len(costs) <= CLASSES_MAX or not are_within((*costs, preference.limit), 0, NUMBER_MAX):
        return "an invalid preference among node classes"
    return None


def demand_problem(lines: tuple[DemandLine, ...], most: int) -> str | None:
    """Check a broker's waiting tasks: no line twice."""
    if len(lines) > most:
        return "too many lines of demand"
    if len(lines) > 1 and len({entry.line for entry in lines}) != len(lines):
        return "a line of demand twice"
    for entry in lines:
        if not (0 <= entry.line <= COUNT_MAX and 0 <= entry.count <= COUNT_MAX):
            return "a line of demand out of range"
        if not is_key(entry.key):
            return "an invalid key"
        problem = shape_problem(entry.shape) or preference_problem(entry.preference)
        if problem is not None:
            return problem
    return None


def attempts_problem(entries: tuple[tuple[int, int], ...], known: TaskCountOf | None) -> str | None:
    """Check tasks with attempts."""
    for task, attempt in entries:
        if not (TASK_MIN <= task <= TASK_MAX and 0 <= attempt <= NUMBER_MAX):
            return "a task or an attempt out of range"
    return (
        task_indices_problem([task for task, _ in entries], known) if known is not None and entries else None
    )


def withheld_problem(entries: tuple[WithheldCapacity, ...], nodes: int) -> str | None:
    """Check withheld capacity by node."""
    if len(entries) > nodes:
        return "more nodes than the cluster has"
    for node, amount in entries:
        problem = resources_problem(amount)
        if problem is not None or not 0 <= node < nodes:
            return problem or "a node that the cluster does not have"
    return None


def ends_problem(entries: tuple[AttemptEnd, ...], known: TaskCountOf | None) -> str | None:
    """Check ends of attempts."""
    for end in entries:
        if not (
            TASK_MIN <= end.task <= TASK_MAX
            and 0 <= end.attempt <= NUMBER_MAX
            and -CODE_MAX <= end.exit_code <= CODE_MAX
        ):
            return "a task, an attempt or a code out of range"
        # Notes come from backends unchanged, so only their length is checked: a refusal would block the
        # runner's link.
        if len(end.note) > NOTE_CHARACTERS_MAX:
            return "a note that is too long"
        usage = end.usage
        if usage is not None and not are_within((usage.cpu, usage.memory, usage.run_time), 0, NUMBER_MAX):
            return "a usage out of range"
    return (
        task_indices_problem([end.task for end in entries], known) if known is not None and entries else None
    )


def task_indices_problem(tasks: Sequence[int], known: TaskCountOf | None) -> str | None:
    """Check that tasks of known jobs have an index below the job's number of tasks."""
    if known is not None:
        for task in tasks:
            count = known(JobId(task >> INDEX_BITS))
            if count is not None and task & INDEX_MAX >= count:
                return "a task that its job does not have"
    return None


def columns_problem(tasks: tuple[int, ...], attempts: tuple[int, ...]) -> str | None:
    """Check tasks and their attempts as columns."""
    if len(tasks) != len(attempts):
        return "columns of different lengths"
    if not are_within(tasks, TASK_MIN, TASK_MAX) or not are_within(attempts, 0, NUMBER_MAX):
        return "a task or an attempt out of range"
    return None


def starts_problem(entries: tuple[StartTask, ...], nodes: frozenset[int] | None) -> str | None:
    """Check starts for a runner: none twice, all on its own nodes."""
    if len({(entry.task, entry.attempt) for entry in entries}) != len(entries):
        return "an attempt to be started twice"
    for entry in entries:
        if not (TASK_MIN <= entry.task <= TASK_MAX and 1 <= entry.attempt <= NUMBER_MAX):
            return "a task or an attempt out of range"
        if not (0 <= entry.node < NODES_MAX if nodes is None else entry.node in nodes):
            return "a node of another runner"
        if not is_shard_name(entry.shard) or len(entry.payload) > PAYLOAD_BYTES_MAX:
            return "an invalid shard or payload"
        problem = resources_problem(entry.size)
        if problem is not None:
            return problem
    return None


def is_ends_column(column: tuple[TaskId, bytes, bytes]) -> bool:
    """True if a column has ends that a job's tasks can have."""
    task, states, _ = column
    if not (TASK_MIN <= task <= TASK_MAX and is_column(column)):
        return False
    return len(states) <= TASKS_PER_JOB_MAX - (task & INDEX_MASK)


def rounds_problem(entries: tuple[tuple[str, int], ...]) -> str | None:
    """Check shards with the number of their latest round."""
    if len(entries) > SHARDS_MAX:
        return "too many shards"
    for shard, number in entries:
        if not is_shard_name(shard) or not 0 <= number <= NUMBER_MAX:
            return "an invalid shard or round"
    return None


def shard_term_problem(shard: str, term: int, takeover_id: int) -> str | None:
    """Check a shard, a term of it and the number of a takeover; 0: none."""
    inside = is_shard_name(shard) and 0 <= term <= NUMBER_MAX and 0 <= takeover_id <= NUMBER_MAX
    return None if inside else "a shard, a term or a takeover id out of range"


def jobs_problem(numbers: tuple[int, ...], most: int) -> str | None:
    """Check that these are at most so many jobs."""
    inside = len(numbers) <= most and are_within(numbers, JOB_MIN, JOB_MAX)
    return None if inside else "too many jobs, or one out of range"
