"""The reference page of the job file, from the table of its fields."""

from collections.abc import Iterable
from typing import Final

from hanse.model import job_fields
from hanse.model.field_descriptions import JobField, OptionKind
from hanse.model.field_reader import ITEMS_MAX, NESTING_MAX
from hanse.model.job import SPEC_BYTES_MAX
from tools.reference.markdown import fence, field_section, paragraphs, table

EXAMPLE: Final = """\
name: nightly-build
tenant: physics
class: batch
priority: 0
deadline: 2h                 # after submission; a number is seconds
retries: 3
preemptible: true
grace: 30s
gang: false
unreachable: move
on_loss: retry
clusters: {allow: [oslo, bern], deny: [rome], prefer: [bern]}
labels: [web]
after: ["1-7"]               # jobs that must succeed first
client_id: build-4711        # the same id twice gives the same job
command: make -j4            # for every group that has no command of its own
env: {MODE: fast}
workdir: /srv/build
groups:
  - name: fetch
    memory: 512MB
  - name: compile
    count: 10
    cpus: 2..16              # elastic
    memory: 4GiB
    gpus: 1
    resources: {fpga: 1}
    where: arch == "arm64" and disk_gb >= 100
    affinity: [{label: db, scope: node, apart: true}]
    needs: [fetch]           # groups that must succeed first
    duration: 10m
    speed_up: [[2, 1, 1], [4, 1, 1.8]]   # CPUs, GPUs, speed
    command: [make, all]
"""
"""A file with almost every field; a test reads it from the page."""

SHORT: Final = """\
name: hello
count: 3
cpus: 0.5
memory: 128MiB
command: echo hello from task $HANSE_TASK
"""

QUANTITIES: Final = (
    ("CPUs", '`2`, `0.5`, `"500m"`', "nothing finer than a thousandth of a CPU"),
    ("bytes",
     '`4096`, `512MB`, `4GiB`, `4Gi`', "`MB` counts in 1000s, `MiB` and `Mi` in 1024s; `4G` is refused"),
    ("time", "`90`, `90s`, `1h30m`, `250ms`, `2d`, `1w`", "a number without a unit is seconds"),
    ("range", "`2..16`, `1GiB..4GiB`", "smallest and largest size of elastic work"),
    ("text",
     "`nightly`, `\"007\"`", "put a text in quotes if YAML would read it as a number, a date or true"),
)  # fmt: skip

CONDITIONS: Final = (
    ('`arch == "arm64"`', "the attribute has this value"),
    ('`arch != "arm64"`', "it has another value, or the node has no such attribute"),
    ('`zone in ("a", "b")`, `zone not in ("a", "b")`', "one of these values; none of them"),
    ("`gpu_model exists`, `has(gpu_model)`", "the node has the attribute"),
    ("`disk_gb >= 100`, also `<`, `<=`, `>`", "whole numbers only"),
    ('`not zone == "a" and (ssd exists or disk_gb > 500)`', "`not` binds before `and`, `and` before `or`"),
    ('`all(ssd exists, zone == "a")`, `any(ssd exists, zone == "b")`', "lists of any length"),
)


def page() -> str:
    """The whole page."""
    rows = job_fields.TABLE
    return paragraphs(
        "# Job file",
        "A job file is YAML or JSON. `hanse submit FILE` submits it, `hanse plan FILE` says when and "
        "where it would start. "
        "This file is a complete job:",
        fence("yaml", SHORT),
        "This file uses almost every field:",
        fence("yaml", EXAMPLE),
        "Every field may be left out; only what differs from the default need be written. A field that is "
        "null counts as not "
        "written. A field that does not exist is refused, with the name that was probably meant. A file "
        "may hold several jobs "
        "with `---` between them. Options of `hanse submit` that are given with a file win over the file.",
        f"A job takes at most {SPEC_BYTES_MAX >> 20} MiB, {ITEMS_MAX:,} values and {NESTING_MAX} levels "
        f"of nesting.",
        "## Values",
        table(("type", "examples", "rule"), QUANTITIES),
        "## Fields of the job",
        *_sections(rows.job),
        "## Fields of a group",
        "These fields stand in each entry of `groups`. A job of one group may leave `groups` out and "
        "write them at the top; its "
        "`name` is then the job's.",
        *_sections(rows.group),
        "## What to run",
        "These fields stand at the top, in a group, or both. Those of a group win over those at the top. "
        "A task without a command fails on the backends `process` and `slurm`.",
        *_sections(rows.program),
        *_nested_sections(rows.top),
        "## Conditions",
        "`where` is a condition on the attributes that the league file gives to nodes:",
        table(("condition", "holds where"), CONDITIONS),
        "A value is a text in single or double quotes, a whole number, `true` or `false`.",
    )  # fmt: skip


def _sections(fields: Iterable[JobField]) -> list[str]:
    return [field_section(field, _option_text(field)) for field in fields]


def _nested_sections(fields: Iterable[JobField]) -> list[str]:
    """The sections of the fields that are mappings, each with a heading."""
    return [
        part
        for field in fields
        if field.fields
        for part in (f"## Fields of {field.name}", *_sections(field.fields))
    ]


def _option_text(field: JobField) -> str:
    """The usual name of the option that sets the field; empty: none."""
    if field.option is None or field.option.kind is OptionKind.ARGUMENT:
        return ""
    return field.option.flags[0]
