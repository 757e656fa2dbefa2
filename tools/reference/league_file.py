"""The reference page of the league file, from the tables of its fields."""

from collections.abc import Iterable
from typing import Final

from hanse.core.config import Timings
from hanse.league.config import LIVE_TIMINGS
from hanse.league.fields import (
    BACKEND_FIELDS,
    BROKER_FIELDS,
    CLUSTER_FIELDS,
    DEVICE_FIELDS,
    LEAGUE_FIELDS,
    NODE_FIELDS,
    POLICY_FIELDS,
    RUNNER_FIELDS,
    USERS_FIELDS,
)
from hanse.live.backends.slurm.league_fields import SLURM_TABLE
from hanse.model.field_descriptions import FileField
from hanse.model.ids import MILLISECOND, SECOND
from tools.reference.markdown import fence, field_section, paragraphs
from tools.reference.source import attribute_texts

SHORT: Final = """\
brokers: [{name: broker-1}, {name: broker-2}]
clusters:
  - name: north
    nodes: [{count: 2, cpus: 4, memory: 8GiB}]
"""

EXAMPLE: Final = """\
league: harbour
timings: {beat: 1s}
policy: {order: fewest-remaining, placer: best-fit, rank: best-standing, sizer: least, node_ranker: first}
brokers:
  - {name: broker-1, address: "10.0.0.1:7401", door: "10.0.0.1:7402"}
  - {name: broker-2, address: "10.0.0.2:7401", door: "10.0.0.2:7402"}
clusters:
  - name: north
    address: "10.0.0.3:7411"
    door: "10.0.0.3:7412"
    backend: {kind: process, user: per-job, sandbox: auto, disk: 20GiB}
    reserve: 1                 # the last node is for latency jobs
    runners:                   # only for nodes on other machines than the warden's
      - {name: north-2, address: "10.0.0.5:7413", door: "10.0.0.5:7414"}
    nodes:
      - {count: 2, cpus: 1, memory: 1GiB, gpus: 0, attributes: {zone: a}}
      - {cpus: 8, memory: 32GiB, resources: {fpga: 1}, runner: north-2}
  - name: baltic
    address: "10.0.0.4:7411"
    door: "10.0.0.4:7412"
    backend: {kind: slurm, conf: /etc/slurm/slurm.conf, shared_dir: /shared/hanse}
"""

SECTIONS: Final[tuple[tuple[str, str, tuple[FileField, ...]], ...]] = (
    ("Fields of the league", "", LEAGUE_FIELDS),
    ("Fields of a broker", "Each entry of `brokers`.", BROKER_FIELDS),
    ("Fields of a cluster", "Each entry of `clusters`.", CLUSTER_FIELDS),
    ("Fields of a runner", "Each entry of `runners` of a cluster.", RUNNER_FIELDS),
    ("Fields of nodes", "Each entry of `nodes` of a cluster: some equal nodes.", NODE_FIELDS),
    ("Fields of devices", "Each entry of `devices` of a node.", DEVICE_FIELDS),
    ("Fields of a backend",
     "`backend` of a cluster. `backend: process` is short for `{kind: process}`.", BACKEND_FIELDS),
    ("Fields of users", "`users` of a backend.", USERS_FIELDS),
    ("Fields of a Slurm backend", "A backend of `kind: slurm` has these fields, too.", SLURM_TABLE),
    ("Fields of policy", "", POLICY_FIELDS),
)  # fmt: skip


def page() -> str:
    """The whole page."""
    parts: list[str] = []
    for title, text, fields in SECTIONS:
        parts += [f"## {title}", text, *_sections(fields)]
    return paragraphs(
        "# League file",
        "The league file is YAML. It names every member of a league, and is the same on every machine. This "
        "file is complete; addresses are chosen when the league is first started:",
        fence("yaml", SHORT),
        "A league on several machines, with one cluster over Slurm "
        "([its settings in use](../operator/slurm.md)):",
        fence("yaml", EXAMPLE),
        "`hanse up --from FILE` starts a league on this machine, `hanse init FILE` founds one for several "
        "machines, and `hanse league apply FILE` changes it while it runs "
        "([Members that come and go](../operator/membership.md)). A field that does not exist is refused, "
        "with the name that was probably meant. [Job file](job-file.md#values) says how CPUs, bytes and "
        "times are written.",
        *parts,
        "## Fields of timings",
        "Times of the protocol. The defaults suit a real network; change them only for a reason, and for the "
        "whole league.",
        *_sections(timing_fields()),
    )


def timing_fields() -> tuple[FileField, ...]:
    """The fields of ``timings``: the record's fields with its own words."""
    said = attribute_texts(Timings)
    fields = []
    for name in Timings.__struct_fields__:
        usual = getattr(LIVE_TIMINGS, name)
        example = _time(2 * usual or SECOND)
        fields.append(FileField(name, "time", _time(usual), "", said[name], f"{name}: {example}"))
    return tuple(fields)


def _time(value: int) -> str:
    return f"{value // SECOND}s" if value % SECOND == 0 else f"{value // MILLISECOND}ms"


def _sections(fields: Iterable[FileField]) -> list[str]:
    return [field_section(field) for field in fields]
