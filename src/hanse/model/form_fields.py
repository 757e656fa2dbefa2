"""Table of all fields of a job file: type, default, limits, meaning and an example of each.

The parser (``model.job_parser``) takes its lists of known fields from here, and the reference page of the job
file is generated from here (``python -m tools.reference``). Defaults and examples are YAML; tests parse every
one.
"""

from typing import Final, NamedTuple

from hanse.model.attempt_key import SECRET_BYTES
from hanse.model.ids import SECOND, TASKS_PER_JOB_MAX
from hanse.model.job import (
    DEADLINE_MAX,
    GRACE_MAX,
    GROUPS_MAX,
    LABELS_MAX,
    NAME_CHARACTERS_MAX,
    PAYLOAD_BYTES_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
)
from hanse.model.job_validation import AFFINITIES_MAX, AFTER_MAX, CLUSTERS_MAX, SPEED_MAX, SPEED_UP_POINTS_MAX
from hanse.model.resources import CPU_MILLI_MAX, CUSTOM_KINDS_MAX, CUSTOM_MAX, GPUS_MAX


class FormField(NamedTuple):
    """Field of a file that people write."""

    name: str
    kind: str
    """Type in words."""
    default: str
    """Default as YAML; empty: none, and the field may be left out."""
    limits: str
    """Bounds in words; empty: none."""
    meaning: str
    example: str
    """Example as YAML: the field with a value, and the fields that it needs."""


_NAME_LIMITS: Final = f"1 to {NAME_CHARACTERS_MAX} printable characters, no space at either end"
_YEARS: Final = DEADLINE_MAX // (365 * 86_400 * SECOND)

JOB_FIELDS: Final = (
    FormField("name", "text", "job", _NAME_LIMITS, "Name of the job, for people.", "name: nightly-build"),
    FormField("tenant", "text", "default", _NAME_LIMITS, "Tenant for whom the job runs.", "tenant: physics"),
    FormField(
        "class", "`batch` or `latency`", "batch", "",
        "Value of time to the job. Only `latency` jobs may use the nodes that a cluster keeps in reserve.",
        "class: latency",
    ),
    FormField(
        "priority", "whole number", "0", f"-{PRIORITY_MAX} to {PRIORITY_MAX}",
        "A higher number is more urgent.", "priority: 5",
    ),
    FormField(
        "deadline", "time", "", f"above 0, at most {_YEARS} years",
        "Time after submission. A job that has not ended by then is cancelled.", "deadline: 2h",
    ),
    FormField(
        "retries", "whole number", "0", f"0 to {RETRIES_MAX}",
        "Restarts of a task that failed by itself. A task that was lost with its node, or stopped "
        "for more urgent work, starts again without using a retry.",
        "retries: 3",
    ),
    FormField(
        "preemptible", "true or false", "false", "",
        "More urgent work may stop the job's tasks; they start again later.", "preemptible: true",
    ),
    FormField(
        "grace", "time", "5s", f"0 to {GRACE_MAX // SECOND // 3_600} hour",
        "Time between the signal to save its work and the end of a task that is stopped.", "grace: 30s",
    ),
    FormField(
        "gang", "true or false", "false", "a gang has one group",
        "All tasks start together in one cluster, or none starts.", "gang: true\ncount: 4",
    ),
    FormField(
        "unreachable", "`move` or `wait`", "move", "",
        "Policy for a task whose cluster cannot be reached. `move`: the task ends when the "
        "cluster's lease "
        "ends, and starts again elsewhere. `wait`: the task goes on, and the league waits for the cluster.",
        "unreachable: wait",
    ),
    FormField(
        "on_loss", "`retry` or `fail`", "retry", "",
        "Policy for a task whose attempt may have started and was lost, so that nobody knows how it "
        "went. `retry`: the task starts again. `fail`: the task ends as failed.",
        "on_loss: fail",
    ),
    FormField(
        "clusters", "mapping", "", "", "Clusters in which the job may run.",
        "clusters: {allow: [oslo, bern], prefer: [bern]}",
    ),
    FormField(
        "labels", "list of texts", "[]", f"at most {LABELS_MAX}",
        "Labels of the job's tasks, which the `affinity` of other jobs names.", "labels: [web]",
    ),
    FormField(
        "after", "list of job ids", "[]", f"at most {AFTER_MAX:,}",
        "Jobs that must succeed before this job starts. If one of them does not succeed, the job is "
        "cancelled.",
        'after: ["1-7"]',
    ),
    FormField(
        "client_id", "text", '""', f"at most {NAME_CHARACTERS_MAX} printable characters",
        "Your own id for this submission. The same id twice gives the same job; empty: none.",
        "client_id: build-4711",
    ),
    FormField(
        "groups", "list of mappings", "", f"1 to {GROUPS_MAX:,}",
        "Groups of equal tasks. A job of one group may leave `groups` out and write the group's "
        "fields at the top.",
        "groups:\n  - {name: fetch, memory: 512MB}\n  - {name: compile, count: 10, needs: [fetch]}",
    ),
    FormField(
        "trace", "text", "", "a W3C traceparent of version 00",
        "The trace that the job becomes part of. Its tasks find it in `TRACEPARENT` unless `env` "
        "sets another.",
        "trace: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
)  # fmt: skip
"""Fields of the job as a whole."""

GROUP_NAME: Final = FormField(
    "name", "text", "main", f"{_NAME_LIMITS}; unique in the job",
    "Name of the group, which `needs` of other groups uses.", "name: compile",
)  # fmt: skip

ASK_FIELDS: Final = (
    FormField(
        "count", "whole number", "1", f"1 to {TASKS_PER_JOB_MAX:,} in all groups together",
        "Number of tasks. Each task finds its index in `HANSE_TASK`.", "count: 10",
    ),
    FormField(
        "cpus", "CPUs or a range", "1", f"at most {CPU_MILLI_MAX // 1_000:,}",
        "CPUs of each task. A range makes the work elastic: the league chooses a size in it.", "cpus: 2..16",
    ),
    FormField(
        "memory", "bytes or a range", "0", "at most 1 PiB",
        "Memory of each task. With 0 nothing is set aside; a task may then use a share of its node's memory.",
        "memory: 4GiB",
    ),
    FormField(
        "gpus", "whole number or a range", "0", f"at most {GPUS_MAX:,}", "GPUs of each task.", "gpus: 1..8"
    ),
    FormField(
        "resources", "mapping of names to whole numbers or ranges", "{}",
        f"at most {CUSTOM_KINDS_MAX} names; each 1 to {CUSTOM_MAX:,}",
        "Other resources that nodes have, by the names of the league file.", "resources: {fpga: 1}",
    ),
    FormField(
        "where", "condition", "", "",
        "A condition on the attributes of a node. Tasks run only where it holds.",
        'where: arch == "arm64" and disk_gb >= 100',
    ),
    FormField(
        "affinity", "list of mappings", "[]", f"at most {AFFINITIES_MAX}",
        "Labels of the tasks beside which the task must run, or must not.",
        "affinity: [{label: db, scope: node, apart: true}]",
    ),
    FormField(
        "duration", "time", "", f"above 0, at most {_YEARS} years",
        "Your estimate of the run time of one task at its smallest size.", "duration: 10m",
    ),
    FormField(
        "speed_up", "list of [CPUs, GPUs, speed]", "",
        f"1 to {SPEED_UP_POINTS_MAX} points in rising order, inside the range; speed at most "
        f"{SPEED_MAX // 1_000:,}",
        "Speed of elastic work at some sizes, as a multiple of the speed at the smallest size.",
        "cpus: 2..16\nspeed_up: [[2, 0, 1], [4, 0, 1.8]]",
    ),
)  # fmt: skip
"""Fields of a group that say what its tasks need; without ``groups`` they stand at the top."""

NEEDS: Final = FormField(
    "needs", "list of texts", "[]", f"at most {GROUPS_MAX:,}; no cycle; not in a gang",
    "Groups of this job that must succeed before this group starts.", "needs: [fetch]",
)  # fmt: skip

COMMAND_FIELDS: Final = (
    FormField(
        "command", "text or list of texts", "",
        f"at most {PAYLOAD_BYTES_MAX >> 20} MiB with `env` and `workdir`",
        "The program to run. A text is run by `/bin/sh`; a list is a program and its arguments.",
        "command: [make, -j4, all]",
    ),
    FormField(
        "env", "mapping of names to texts", "", "",
        "Environment variables. Those of a group are added to those of the job and win over them.",
        "env: {MODE: fast}",
    ),
    FormField(
        "workdir", "text", "", "",
        "Directory on the node in which the program starts; by default an empty one that is removed "
        "afterwards.",
        "workdir: /srv/build",
    ),
    FormField(
        "secret", "text", "", f"{2 * SECRET_BYTES} hexadecimal digits, drawn at random",
        "The source of a key for each attempt, which the Python SDK uses. No task is given the "
        "secret itself.",
        f"secret: {'0123456789abcdef' * (SECRET_BYTES // 8)}",
    ),
)  # fmt: skip
"""Fields of the program to run. Those of a group win over those at the top."""

CLUSTERS_FIELDS: Final = (
    FormField(
        "allow", "list of texts", "[]", f"at most {CLUSTERS_MAX:,}",
        "Clusters in which the job may run; empty: all.",
        "allow: [oslo, bern]",
    ),
    FormField(
        "deny", "list of texts", "[]", f"at most {CLUSTERS_MAX:,}; none of `allow`",
        "Clusters in which the job must not run.", "deny: [rome]",
    ),
    FormField(
        "prefer", "list of texts", "[]", f"at most {CLUSTERS_MAX:,}",
        "Clusters that hold the job's data, best first. A preference, not a rule.", "prefer: [bern]",
    ),
)  # fmt: skip
"""Fields of ``clusters``."""

AFFINITY_FIELDS: Final = (
    FormField("label", "text", "", f"required; {_NAME_LIMITS}", "The label of the other tasks.", "label: db"),
    FormField("scope", "`node` or `cluster`", "node", "", "The distance.", "label: db\nscope: cluster"),
    FormField(
        "apart", "true or false", "false", "",
        "false: run only where a task with the label runs. true: never run there. With a label of "
        "the job's own, "
        "true spreads its tasks.",
        "label: db\napart: true",
    ),
)  # fmt: skip
"""Fields of each entry of ``affinity``."""


def names_of(fields: tuple[FormField, ...]) -> tuple[str, ...]:
    """Return the names of some fields, in the order of the table."""
    return tuple(field.name for field in fields)
