"""The reference page of the world file, from the table of its fields."""

import json
from typing import Final

import msgspec

from hanse.sim.worlds.fields.field_kinds import WorldField
from hanse.sim.worlds.fields.world_fields import TABLES, default_of
from hanse.sim.worlds.round_trips import BASE_MS, MS_PER_KM, PLACES
from hanse.sim.worlds.world import (
    DataRules,
    DeadlineRules,
    GangRules,
    InterferenceRules,
    NodeClass,
    NodeRun,
    OutageRules,
    RoundTrips,
    TemplateRules,
    TokenRules,
    WorkKind,
    WorkRules,
    World,
    WorldCluster,
    WorldNetwork,
)
from tools.reference.markdown import fence, field_section, paragraphs

EXAMPLE: Final = """\
world: small
work_kinds:
  - {name: compute, cores: [2, 4]}
  - {name: etl, share: 0.5, cores: [2], bandwidth_per_core: 3GB/s, data_rate: 10MB/s}
node_classes:
  - {name: old, cores: 16, memory: 64GiB, memory_bandwidth: 55GB/s, speed: {compute: 0.7}}
  - {name: new, cores: 32, memory: 256GiB, memory_bandwidth: 165GB/s, speed: {compute: 1.2, etl: 1.1}}
clusters:
  - {name: north, region: FI, nodes: [{class: old, count: 12}]}
  - {name: south, region: ES, nodes: [{class: new, count: 8}], topology: leaf-spine, oversubscription: 1.5}
"""

SECTIONS: Final[tuple[tuple[str, str, type[msgspec.Struct]], ...]] = (
    ("Fields of the world", "", World),
    ("Fields of a kind of work", "Each entry of `work_kinds`.", WorkKind),
    ("Fields of a node class", "Each entry of `node_classes`.", NodeClass),
    ("Fields of a cluster", "Each entry of `clusters`.", WorldCluster),
    ("Fields of nodes", "Each entry of `nodes` of a cluster: some neighbouring nodes of one class.", NodeRun),
    ("Fields of network", "", WorldNetwork),
    (
        "Fields of network.round_trips",
        (
            "Instead of these, `file: PATH` takes the figures from a table in milliseconds whose header has "
            "the region codes; a relative path starts at the folder of the world file."
        ),
        RoundTrips,
    ),
    ("Fields of templates", "A template is a program that is submitted again and again.", TemplateRules),
    ("Fields of data", "", DataRules),
    ("Fields of interference", "", InterferenceRules),
    ("Fields of failures", "Times are exponentially distributed, for each node by itself.", OutageRules),
    ("Fields of work", "", WorkRules),
    ("Fields of work.tokens", "", TokenRules),
    ("Fields of work.gangs", "", GangRules),
    ("Fields of work.deadlines", "", DeadlineRules),
)


def page() -> str:
    """The whole page."""
    parts: list[str] = []
    for title, text, record in SECTIONS:
        parts += [f"## {title}", text, *(field_section(with_default(record, row)) for row in TABLES[record])]
    return paragraphs(
        "# World file",
        "A world file is YAML. It describes unequal clusters for replays: where work runs faster, where "
        "data is, and how neighbours slow each other down ([Worlds](../research/worlds.md)). This file is "
        "complete:",
        fence("yaml", EXAMPLE),
        "`hanse world generate` writes larger ones, `hanse world describe FILE` checks one and shows it. A "
        "field that does not exist is refused, with the name that was probably meant. "
        "[Job file](job-file.md#values) says how bytes and times are written. A *rate* is `105GB/s` (bytes) "
        "or `10Gb/s` (bits).",
        *parts,
        "## Regions",
        f"Without `network.round_trips`, a round trip takes {BASE_MS:g} ms and {MS_PER_KM:g} ms for each "
        "kilometre between these regions, in whole milliseconds: "
        f"{', '.join(f'`{code}`' for code in PLACES)}.",
    )


def with_default(record: type[msgspec.Struct], row: WorldField) -> WorldField:
    """The row with the default of its record, as it is written in the file."""
    value = default_of(record, row)
    if row.is_required or value is msgspec.NODEFAULT or row.record is not None or not (value or value == 0):
        return row
    written = row.write(value)
    is_yaml = isinstance(written, bool | dict | list)
    text = json.dumps(written).replace('"', "") if is_yaml else str(written)
    return msgspec.structs.replace(row, default="" if written in ({}, []) else text)
