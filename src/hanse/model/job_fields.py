"""Table of all fields of a job file: one row has all that is known of a field.

Everything that knows the fields walks this table: the parser (``model.job_parser``) and the writer
(``model.job_writer``), the options of ``hanse submit`` (``cli.job_options``, ``client.job_form``), the forms
of the OpenAPI document (``api.job_schemas``) and the reference page of the job file
(``python -m tools.reference``). A new field needs a row here, and a field of the record that holds its value.
Defaults and examples are YAML; tests parse every one.
"""

from typing import Annotated, Final

from msgspec import Meta

from hanse.model.attempt_key_derivation import SECRET_BYTES
from hanse.model.constraint_syntax import format_constraint
from hanse.model.field_descriptions import CommandOption, JobField, JobFormTable, OptionKind
from hanse.model.field_reader import read_flag, read_integer, read_text, read_texts, read_trace
from hanse.model.form_values import (
    merge_variables,
    range_reader,
    range_writer,
    read_custom,
    read_jobs,
    read_speed_up,
    read_variables,
    read_where,
    write_custom,
    write_jobs,
    write_list,
    write_speed_up,
    write_time,
)
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
    Affinity,
    JobClass,
    OnLoss,
    Together,
    UnreachablePolicy,
)
from hanse.model.job_validation import AFFINITIES_MAX, AFTER_MAX, SPEED_MAX, SPEED_UP_POINTS_MAX
from hanse.model.nested_job_fields import (
    AFFINITY_FIELDS,
    CLUSTERS_FIELDS,
    NAME_LIMITS,
    Name,
    enumeration,
)
from hanse.model.program import read_argument, read_argv, read_secret
from hanse.model.quantities import parse_bytes, parse_cpus, parse_duration, parse_whole
from hanse.model.resources import CPU_MILLI_MAX, CUSTOM_KINDS_MAX, CUSTOM_MAX, GPUS_MAX

_YEARS: Final = DEADLINE_MAX // (365 * 86_400 * SECOND)

Duration = str | Annotated[float, Meta(ge=0)]
"""``1h30m``, or seconds."""
Amount = str | Annotated[float, Meta(ge=0)]
"""``4GiB``, ``500m``, a number, or a range ``1..8`` for elastic work."""
_JobText = Annotated[str, Meta(pattern="^[1-9][0-9]*-(0|[1-9][0-9]*)$")]
_SecretText = Annotated[str, Meta(pattern=f"^[0-9a-fA-F]{{{2 * SECRET_BYTES}}}$")]


_CLASS: Final = enumeration(JobClass, JobClass.BATCH)
_UNREACHABLE: Final = enumeration(UnreachablePolicy, UnreachablePolicy.MOVE)
_ON_LOSS: Final = enumeration(OnLoss, OnLoss.RETRY)
_TOGETHER: Final = enumeration(Together, Together.CLUSTER)

JOB_FIELDS: Final = (
    JobField(
        "name", "text", "job", NAME_LIMITS, "Name of the job, for people.", "name: nightly-build",
        read=read_text, schema=Name,
        option=CommandOption(("--name",), 20, "Name of the job.  [default: that of the program]"),
    ),
    JobField(
        "tenant", "text", "default", NAME_LIMITS, "Tenant for whom the job runs.", "tenant: physics",
        read=read_text, schema=Name,
        option=CommandOption(("--tenant",), 230, "Tenant of the job.  [default: $HANSE_TENANT]", "NAME"),
    ),
    JobField(
        "class", _CLASS.kind, "batch", "",
        "Value of time to the job. Only `latency` jobs may use the nodes that a cluster keeps in reserve.",
        "class: latency",
        attribute="klass", read=_CLASS.read, write=str, schema=_CLASS.schema,
        option=CommandOption(("--class",), 120, "Time class of the job.", choices=_CLASS.words),
    ),
    JobField(
        "priority", "whole number", "0", f"-{PRIORITY_MAX} to {PRIORITY_MAX}",
        "A higher number is more urgent.", "priority: 5",
        read=read_integer, schema=Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)],
        option=CommandOption(
            ("--priority",), 110, f"-{PRIORITY_MAX} to {PRIORITY_MAX}; higher is more urgent.", "N",
            OptionKind.WHOLE,
        ),
    ),
    JobField(
        "deadline", "time", "", f"above 0, at most {_YEARS} years",
        "Time after submission. A job that has not ended by then is cancelled.", "deadline: 2h",
        read=parse_duration, write=write_time, schema=Duration,
        option=CommandOption(
            ("--deadline",), 130, "Cancel it if it has not ended by then, such as 2h.", "TIME"
        ),
    ),
    JobField(
        "retries", "whole number", "0", f"0 to {RETRIES_MAX}",
        "Restarts of a task that failed by itself. A task that was lost with its node, or stopped "
        "for more urgent work, starts again without using a retry.",
        "retries: 3",
        read=read_integer, schema=Annotated[int, Meta(ge=0, le=RETRIES_MAX)],
        option=CommandOption(("--retries",), 150, "Retries of a task that fails.", "N", OptionKind.WHOLE),
    ),
    JobField(
        "preemptible", "true or false", "false", "", "More urgent work may stop the job's tasks; they start "
        "again later.", "preemptible: true", read=read_flag, schema=bool,
        option=CommandOption(
            ("--preemptible",), 170, "More urgent jobs may stop it; it starts again later.",
            kind=OptionKind.FLAG,
        ),
    ),
    JobField(
        "grace", "time", "5s", f"0 to {GRACE_MAX // SECOND // 3_600} hour",
        "Time between the signal to save its work and the end of a task that is stopped.", "grace: 30s",
        read=parse_duration, write=write_time, schema=Duration,
        option=CommandOption(("--grace",), 180, "Time from the signal to save its work to its end.", "TIME"),
    ),
    JobField(
        "gang", "true or false", "false", "a gang has one group",
        "All tasks start together in one cluster, or none starts.", "gang: true\ncount: 4",
        read=read_flag, schema=bool,
        option=CommandOption(("--gang",), 160, "Start all tasks together, or none.", kind=OptionKind.FLAG),
    ),
    JobField(
        "together", _TOGETHER.kind, "cluster", "needs `gang: true`",
        "Part of a cluster in which a gang runs. `rack`: nodes of one attribute `rack`. `node`: one node.",
        "gang: true\ntogether: rack\ncount: 4", read=_TOGETHER.read, write=str, schema=_TOGETHER.schema,
        option=CommandOption(("--together",), 161, "Part of a cluster for a gang.", choices=_TOGETHER.words),
    ),
    JobField(
        "spread", "text", '""', "needs `gang: true`",
        "Attribute of nodes, such as `zone`, over the values of which a gang is spread, as evenly as room "
        "allows. Nodes without it are not used. Empty: no spread.",
        "gang: true\nspread: zone\ncount: 4", read=read_text, schema=str,
        option=CommandOption(("--spread",), 162, "Spread a gang over an attribute of nodes.", "ATTRIBUTE"),
    ),
    JobField(
        "spread_max", "whole number", "0", f"0 to {TASKS_PER_JOB_MAX:,}; needs `spread`",
        "Largest number of tasks on the nodes of one value of `spread`; 0: no bound.",
        "gang: true\nspread: zone\nspread_max: 2\ncount: 4", read=read_integer,
        schema=Annotated[int, Meta(ge=0, le=TASKS_PER_JOB_MAX)],
        option=CommandOption(("--spread-max",), 163, "Most tasks of each value.", "N", OptionKind.WHOLE),
    ),
    JobField(
        "unreachable", _UNREACHABLE.kind, "move", "",
        "Policy for a task whose cluster cannot be reached. `move`: the task ends when the "
        "cluster's lease ends, and starts again elsewhere. `wait`: the task goes on, and the league "
        "waits for the cluster.",
        "unreachable: wait",
        read=_UNREACHABLE.read, write=str, schema=_UNREACHABLE.schema,
        option=CommandOption(
            ("--unreachable",), 190, "Reaction to an unreachable cluster.", choices=_UNREACHABLE.words
        ),
    ),
    JobField(
        "on_loss", _ON_LOSS.kind, "retry", "",
        "Policy for a task whose attempt may have started and was lost, so that nobody knows how it "
        "went. `retry`: the task starts again. `fail`: the task ends as failed.",
        "on_loss: fail",
        read=_ON_LOSS.read, write=str, schema=_ON_LOSS.schema,
        option=CommandOption(
            ("--on-loss",), 200, "Reaction to a lost task that may have started.", choices=_ON_LOSS.words
        ),
    ),
    JobField(
        "clusters", "mapping", "", "", "Clusters in which the job may run.",
        "clusters: {allow: [oslo, bern], prefer: [bern]}",
        fields=CLUSTERS_FIELDS,
    ),
    JobField(
        "labels", "list of texts", "[]", f"at most {LABELS_MAX}",
        "Labels of the job's tasks, which the `affinity` of other jobs names.", "labels: [web]",
        read=read_texts, write=write_list, schema=tuple[Name, ...],
        option=CommandOption(("--label",), 220, "Label for nearness rules.", "WORD", OptionKind.TEXTS),
    ),
    JobField(
        "after", "list of job ids", "[]", f"at most {AFTER_MAX:,}",
        "Jobs that must succeed before this job starts. If one of them does not succeed, the job is "
        "cancelled.",
        'after: ["1-7"]',
        read=read_jobs, write=write_jobs, schema=tuple[_JobText, ...],
        option=CommandOption(("--after",), 210, "Start when this job has succeeded.", "JOB", OptionKind.JOBS),
    ),
    JobField(
        "client_id", "text", '""', f"at most {NAME_CHARACTERS_MAX} printable characters",
        "Your own id for this submission. The same id twice gives the same job; empty: none.",
        "client_id: build-4711",
        read=read_text, schema=Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)],
        option=CommandOption(("--client-id",), 270, "The same id twice gives the same job.", "ID"),
    ),
    JobField(
        "groups", "list of mappings", "", f"1 to {GROUPS_MAX:,}",
        "Groups of equal tasks. A job of one group may leave `groups` out and write the group's "
        "fields at the top.",
        "groups:\n  - {name: fetch, memory: 512MB}\n  - {name: compile, count: 10, needs: [fetch]}",
    ),
    JobField(
        "trace", "text", "", "a W3C traceparent of version 00",
        "The trace that the job becomes part of. Its tasks find it in `TRACEPARENT` unless `env` "
        "sets another.",
        "trace: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        read=read_trace,
        option=CommandOption(
            ("--trace",), 260, "The W3C trace that it belongs to.  [default: $TRACEPARENT]", "TRACEPARENT"
        ),
    ),
)  # fmt: skip
"""Fields of the job as a whole, in ``JobSpec``."""

GROUP_FIELDS: Final = (
    JobField(
        "name", "text", "main", f"{NAME_LIMITS}; unique in the job",
        "Name of the group, which `needs` of other groups uses.", "name: compile",
        read=read_text, schema=Name,
    ),
    JobField(
        "count", "whole number", "1", f"1 to {TASKS_PER_JOB_MAX:,} in all groups together",
        "Number of tasks. Each task finds its index in `HANSE_TASK`.", "count: 10",
        read=read_integer, schema=Annotated[int, Meta(ge=1, le=TASKS_PER_JOB_MAX)],
        option=CommandOption(
            ("-n", "--count"), 10, "Number of tasks; each finds its index in $HANSE_TASK.", "N",
            OptionKind.WHOLE,
        ),
    ),
    JobField(
        "cpus", "CPUs or a range", "1", f"at most {CPU_MILLI_MAX // 1_000:,}",
        "CPUs of each task. A range makes the work elastic: the league chooses a size in it.", "cpus: 2..16",
        attribute="ask.cpu", read=range_reader(parse_cpus), write=range_writer("m"), schema=Amount,
        option=CommandOption(
            ("--cpus",), 30, "CPUs of a task: 2, 0.5, 500m, or 2..16 for elastic work.", "N"
        ),
    ),
    JobField(
        "memory", "bytes or a range", "0", "at most 1 PiB",
        "Memory of each task. With 0 nothing is set aside; a task may then use a share of its node's memory.",
        "memory: 4GiB",
        attribute="ask.memory", read=range_reader(parse_bytes), write=range_writer(""), schema=Amount,
        option=CommandOption(
            ("--mem", "--memory"), 40,
            "Memory of a task, such as 512MB or 4GiB.  [default: none is reserved; it is "
            "ended beyond its share of the node's]",
            "SIZE",
        ),
    ),
    JobField(
        "gpus", "whole number or a range", "0", f"at most {GPUS_MAX:,}",
        "GPUs of each task, which no other task has meanwhile.", "gpus: 1..8",
        attribute="ask.gpu", read=range_reader(parse_whole), write=range_writer(""), schema=Amount,
        option=CommandOption(("--gpus",), 50, "GPUs of a task, or a range such as 1..8.", "N"),
    ),
    JobField(
        "resources", "mapping of names to whole numbers or ranges", "{}",
        f"at most {CUSTOM_KINDS_MAX} names; each 1 to {CUSTOM_MAX:,}",
        "Other resources that nodes have, by the names of the league file.", "resources: {fpga: 1}",
        attribute="ask.custom", read=read_custom, write=write_custom, schema=dict[str, Amount],
        option=CommandOption(("--resource",), 60, "Another resource of a task.", "NAME=N", OptionKind.PAIRS),
    ),
    JobField(
        "where", "condition", "", "",
        "A condition on the attributes of a node. Tasks run only where it holds.",
        'where: arch == "arm64" and disk_gb >= 100',
        read=read_where, write=format_constraint,
        option=CommandOption(
            ("--where",), 70, """Condition on nodes: 'arch == "arm64" and zone in ("a","b")'.""", "COND"
        ),
    ),
    JobField(
        "affinity", "list of mappings", "[]", f"at most {AFFINITIES_MAX}",
        "Labels of the tasks beside which the task must run, or must not.",
        "affinity: [{label: db, scope: node, apart: true}]",
        fields=AFFINITY_FIELDS, record=Affinity,
    ),
    JobField(
        "duration", "time", "", f"above 0, at most {_YEARS} years",
        "Your estimate of the run time of one task at its smallest size.", "duration: 10m",
        read=parse_duration, write=write_time, schema=Duration,
        option=CommandOption(("--duration",), 140, "Estimated run time of a task.", "TIME"),
    ),
    JobField(
        "input", "bytes", "0", "at most 1 PiB",
        "Bytes that each task reads from the clusters in `clusters.prefer` before it starts. A league "
        "that places by estimated finish counts the transfer.",
        "input: 20GB\nclusters: {prefer: [bern]}",
        attribute="input_bytes", read=parse_bytes, schema=Amount,
        option=CommandOption(("--input",), 145, "Bytes that a task reads from where its data is.", "SIZE"),
    ),
    JobField(
        "speed_up", "list of [CPUs, GPUs, speed]", "",
        f"1 to {SPEED_UP_POINTS_MAX} points in rising order, inside the range; speed at most "
        f"{SPEED_MAX // 1_000:,}",
        "Speed of elastic work at some sizes, as a multiple of the speed at the smallest size.",
        "cpus: 2..16\nspeed_up: [[2, 0, 1], [4, 0, 1.8]]",
        read=read_speed_up, write=write_speed_up, schema=tuple[tuple[Amount, Amount, Amount], ...],
    ),
    JobField(
        "needs", "list of texts", "[]", f"at most {GROUPS_MAX:,}; no cycle; not in a gang",
        "Groups of this job that must succeed before this group starts.", "needs: [fetch]",
        read=read_texts, write=write_list, schema=tuple[Name, ...],
    ),
)  # fmt: skip
"""Fields of a group, in ``TaskGroup``. Without ``groups`` those behind the name stand at the top."""

PROGRAM_FIELDS: Final = (
    JobField(
        "command", "text or list of texts", "",
        f"at most {PAYLOAD_BYTES_MAX >> 20} MiB with `env` and `workdir`",
        "The program to run. A text is run by `/bin/sh`; a list is a program and its arguments.",
        "command: [make, -j4, all]",
        attribute="argv", read=read_argv, write=write_list, schema=str | tuple[str | int, ...],
        option=CommandOption(("CMD",), 0, "The program and its arguments.", kind=OptionKind.ARGUMENT),
    ),
    JobField(
        "env", "mapping of names to texts", "", "",
        "Environment variables. Those of a group are added to those of the job and win over them.",
        "env: {MODE: fast}",
        read=read_variables, write=dict, schema=dict[str, str | int], merge=merge_variables,
        option=CommandOption(("--env",), 240, "A variable of its environment; without a value, that of this "
                             "shell.", "NAME[=VALUE]", OptionKind.VARIABLES),
    ),
    JobField(
        "workdir", "text", "", "",
        "Directory on the node in which the program starts; by default an empty one that is removed "
        "afterwards.",
        "workdir: /srv/build",
        read=read_argument, schema=str | int,
        option=CommandOption(("--workdir",), 250, "Working directory on the node.", "DIR"),
    ),
    JobField(
        "secret", "text", "", f"{2 * SECRET_BYTES} hexadecimal digits, drawn at random",
        "The source of a key for each attempt, which the Python SDK uses. No task is given the "
        "secret itself.",
        f"secret: {'0123456789abcdef' * (SECRET_BYTES // 8)}",
        read=read_secret, write=bytes.hex, schema=_SecretText,
    ),
)  # fmt: skip
"""Fields of the program to run, in ``Program``. Those of a group win over those at the top."""

TABLE = JobFormTable(JOB_FIELDS, GROUP_FIELDS, PROGRAM_FIELDS)
"""All fields. Readers take it from this module when they need it, so that a test can add a row."""
