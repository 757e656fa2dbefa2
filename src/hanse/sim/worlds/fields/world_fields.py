"""Table of all fields of the world file: limits, meaning and example of each.

``world_file`` reads and writes by these rows, and ``docs/reference/world-file.md`` is generated from them.
Defaults are those of the records in ``world``.
"""

from typing import Any, Final

import msgspec

from hanse.sim.worlds.columns import REPLICAS_MAX
from hanse.sim.worlds.fields.field_kinds import (
    CORES_MAX,
    NODES_MAX,
    WorldField,
    bytes_field,
    choice_field,
    entries_field,
    factor_field,
    factors_reader,
    flag_field,
    mapping_field,
    name_field,
    rate_field,
    read_attributes,
    read_constraint,
    read_milliseconds,
    read_names,
    read_wholes,
    share_field,
    text_field,
    time_field,
    whole_field,
    write_factors,
    write_list,
    write_milliseconds,
)
from hanse.sim.worlds.world import (
    GANG_TOPOLOGIES,
    RESOURCE_RULES,
    TOPOLOGIES,
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

SEED_MAX: Final = (1 << 63) - 1
SPEED_LEAST: Final = 0.01
SPEED_MOST: Final = 100.0
DEVIATION_MAX: Final = 3.0
"""Largest deviation of a lognormal factor: beyond it most of the work would be in a few tasks."""
TASKS_MAX: Final = 100_000

WORLD_FIELDS: Final = (
    name_field("Name of the world, in the results of its replays.", "world: small", "world", "name"),
    text_field("about", "Origin and purpose, for readers.", "about: two clusters, for a first look"),
    entries_field(
        "work_kinds", WorkKind,
        "The kinds of work: labels that submitters give their jobs. The order counts in draws: add new ones "
        "at the end.",
        "work_kinds: [{name: compute}, {name: etl, data_rate: 10MB/s}]",
    ),
    entries_field(
        "node_classes", NodeClass, "The classes of equal machines, at most 64.",
        "node_classes: [{name: old, cores: 16, memory: 64GiB}]",
    ),
    entries_field(
        "clusters", WorldCluster, "The clusters.",
        "clusters: [{name: north, region: DE, nodes: [{class: old, count: 20}]}]",
    ),
    mapping_field(
        "network", WorldNetwork, "Links and the most that one flow has.", "network: {rack_flow: 400MB/s}",
    ),
    mapping_field("templates", TemplateRules, "Recurring programs.", "templates: {shared: 120, local: 15}"),
    mapping_field("data", DataRules, "Inputs of jobs.", "data: {replicas: 2, home_share: 0.7}"),
    mapping_field(
        "interference", InterferenceRules,
        "Slow-down by crowded memory bandwidth, for a sensitivity of 1.", "interference: {knee: 0.3}",
    ),
    mapping_field("failures", OutageRules, "Outages of nodes.", "failures: {between: 30d, length: 10m}"),
    mapping_field("work", WorkRules, "Rules by which traces become work.", "work: {horizon: 20m}"),
)  # fmt: skip
"""Fields at the top of the file."""

KIND_FIELDS: Final = (
    name_field("Name of the kind of work.", "name: etl"),
    factor_field("share", "Share of the jobs, relative to the other kinds.", "share: 0.5"),
    WorldField(
        name="cores", kind="list of whole numbers", limits=f"1 to {CORES_MAX:,} each",
        meaning="Cores of a task; a program has one of these, with equal odds.", example="cores: [2, 4]",
        read=read_wholes, write=write_list,
    ),
    bytes_field("memory_per_core", "Memory of a task for each core.", "memory_per_core: 4GiB", 1),
    whole_field("gpus", "GPUs of a task.", "gpus: 1", 0, CORES_MAX),
    rate_field(
        "bandwidth_per_core", "Memory bandwidth that a task demands for each core.",
        "bandwidth_per_core: 6GB/s", 0,
    ),
    factor_field(
        "bandwidth_sensitivity", "Slow-down by crowded memory bandwidth, relative to `interference`.",
        "bandwidth_sensitivity: 1",
    ),
    factor_field(
        "cache_sensitivity", "Slow-down if neighbours pollute the caches of all cores.",
        "cache_sensitivity: 0.6",
    ),
    factor_field(
        "pollution_per_core", "Cores whose caches each core of a task pollutes.", "pollution_per_core: 0.5"
    ),
    rate_field("data_rate", "Input for each second of work.", "data_rate: 10MB/s", 0),
    WorldField(
        name="requires", kind="constraint",
        meaning="Condition on the attributes of a node class, in the language of the job file's `where`; "
        "every class has the attribute `class`, one with GPUs `gpu_kind`. Empty: none.",
        example="requires: gpu_kind == \"A100\"", read=read_constraint,
    ),
    time_field(
        "seconds_median",
        "Median work of a task if the trace states no durations (Google 2019): they are lognormal.",
        "seconds_median: 45s",
    ),
    factor_field(
        "seconds_deviation", "Deviation of the logarithm of these durations.", "seconds_deviation: 1.2",
        0.0, DEVIATION_MAX,
    ),
)  # fmt: skip
"""Fields of an entry of ``work_kinds``."""

CLASS_FIELDS: Final = (
    name_field("Name of the node class.", "name: milan"),
    whole_field("cores", "Cores of a node.", "cores: 48", 1, CORES_MAX, is_required=True),
    bytes_field("memory", "Memory of a node.", "memory: 256GiB", 1, is_required=True),
    rate_field("memory_bandwidth", "Memory bandwidth of a node.", "memory_bandwidth: 165GB/s"),
    whole_field("gpus", "GPUs of a node.", "gpus: 4", 0, CORES_MAX),
    text_field("gpu_kind", "Kind of the GPUs.", "gpu_kind: A100"),
    bytes_field("disk", "Local disk; described only.", "disk: 1TB"),
    WorldField(
        name="speed", kind="mapping of names to numbers", limits=f"{SPEED_LEAST:g} to {SPEED_MOST:g} each",
        meaning="Seconds of work per second for each kind of work; 1 for a kind that is not named.",
        example="speed: {compute: 1.3, etl: 0.8}", read=factors_reader(SPEED_LEAST, SPEED_MOST),
        write=write_factors,
    ),
    WorldField(
        name="attributes", kind="mapping of names to values",
        meaning="Attributes for `requires`: words, whole numbers, true or false.",
        example="attributes: {zone: a, avx512: true}", read=read_attributes, write=dict,
    ),
)  # fmt: skip
"""Fields of an entry of ``node_classes``."""

CLUSTER_FIELDS: Final = (
    name_field("Name of the cluster.", "name: frankfurt"),
    text_field(
        "region", "Region code, as in `network.round_trips`. Empty: the name of the cluster.", "region: DE"
    ),
    entries_field(
        "nodes", NodeRun, "The nodes, in the order of the racks: each rack is filled before the next one.",
        "nodes: [{class: old, count: 30}, {class: new, count: 20}]",
    ),
    whole_field(
        "nodes_per_rack", "Nodes of a rack; the last one may have fewer.", "nodes_per_rack: 40", 1, NODES_MAX,
    ),
    choice_field(
        "topology", TOPOLOGIES,
        "Network of the racks, for readers: the model knows it by its `oversubscription`.",
        "topology: leaf-spine",
    ),
    factor_field(
        "oversubscription",
        "Links of a rack's nodes together, relative to the rack's uplink: 4 is usual for a tree, 1.5 for "
        "leaf-spine.",
        "oversubscription: 1.5", 0.1,
    ),
    rate_field("wan", "Access to the other clusters.", "wan: 20Gb/s", is_link=True),
    WorldField(
        name="work_shares", kind="mapping of names to numbers",
        meaning="Shares of the kinds of work that are submitted here; a kind that is not named has none. "
        "Empty: the shares of the kinds.",
        example="work_shares: {compute: 3, etl: 1}", read=factors_reader(0.0, 1_000.0), write=write_factors,
    ),
)  # fmt: skip
"""Fields of an entry of ``clusters``."""

RUN_FIELDS: Final = (
    name_field("Node class.", "class: old", "class", "node_class"),
    whole_field("count", "Number of nodes.", "count: 20", 1, NODES_MAX, is_required=True),
)  # fmt: skip
"""Fields of an entry of ``nodes`` of a cluster."""

NETWORK_FIELDS: Final = (
    rate_field(
        "nic", "Link of a node: with `oversubscription` it makes a rack's uplink.", "nic: 25Gb/s",
        is_link=True,
    ),
    rate_field("rack_flow", "Most that one flow within a rack has.", "rack_flow: 1GB/s"),
    rate_field("lan_flow", "Most that one flow between racks of a cluster has.", "lan_flow: 500MB/s"),
    rate_field("wan_flow", "Most that one flow between clusters has.", "wan_flow: 50MB/s"),
    bytes_field(
        "wan_window", "Bytes on their way in one flow between clusters: it has at most these per round trip.",
        "wan_window: 16MB", 1,
    ),
    mapping_field(
        "round_trips", RoundTrips,
        "Round trips between the regions. Left out: by distance, for regions of the list below.",
        "round_trips: {regions: [north, south], milliseconds: [[1, 30], [30, 1]]}",
    ),
)  # fmt: skip
"""Fields of ``network``."""

TRIP_FIELDS: Final = (
    text_field("origin", "Source of the figures, in words.", "origin: measured in March"),
    WorldField(
        name="regions", kind="list of names", meaning="Codes of the regions, in the order of the table.",
        example="regions: [DE, SG]", read=read_names, write=write_list,
    ),
    WorldField(
        name="milliseconds", kind="list of lists of numbers", attribute="matrix", limits="0 to 60,000 each",
        meaning="Round trips from each region (a row) to each.", example="milliseconds: [[5, 193], [193, 5]]",
        read=read_milliseconds, write=write_milliseconds,
    ),
)  # fmt: skip
"""Fields of ``network.round_trips``; ``file`` beside them is read and never written."""

TEMPLATE_FIELDS: Final = (
    whole_field("shared", "Templates that all clusters submit.", "shared: 40", 0, 100_000),
    whole_field("local", "Further templates of each cluster.", "local: 5", 0, 100_000),
    share_field("local_share", "Share of the recurring jobs whose template is local.", "local_share: 0.2"),
    share_field("unknown_share", "Share of the jobs without history.", "unknown_share: 0.5"),
    factor_field(
        "speed_deviation", "Deviation of the logarithm of a template's speed on each node class.",
        "speed_deviation: 0.3", 0.0, DEVIATION_MAX,
    ),
    factor_field(
        "demand_deviation", "The same of its memory bandwidth.", "demand_deviation: 0.2", 0.0, DEVIATION_MAX,
    ),
    factor_field(
        "sensitivity_deviation", "The same of each of its sensitivities.", "sensitivity_deviation: 0.2",
        0.0, DEVIATION_MAX,
    ),
    factor_field("data_deviation", "The same of its input.", "data_deviation: 1", 0.0, DEVIATION_MAX),
    whole_field(
        "seed",
        "Seed of the templates: the same in all work of a world, so that what was learned stays true.",
        "seed: 7", 0, SEED_MAX,
    ),
)  # fmt: skip
"""Fields of ``templates``."""

DATA_FIELDS: Final = (
    whole_field("replicas", "Racks that hold a job's input.", "replicas: 3", 0, REPLICAS_MAX),
    share_field("home_share", "Odds that a replica is in the cluster of the submitter.", "home_share: 1"),
    flag_field("holds_cores", "A task holds its cores while it reads its input.", "holds_cores: false"),
)  # fmt: skip
"""Fields of ``data``."""

INTERFERENCE_FIELDS: Final = (
    factor_field("knee", "Slow-down at saturated memory bandwidth.", "knee: 0.2"),
    factor_field("slope", "Further slow-down for each unit of demand beyond saturation.", "slope: 1"),
)
"""Fields of ``interference``."""

FAILURE_FIELDS: Final = (
    time_field(
        "between",
        "Mean time of a node from an outage to its next one; 0: nodes do not fail.",
        "between: 2h",
        0,
    ),
    time_field("length", "Mean length of an outage.", "length: 5m"),
)
"""Fields of ``failures``."""

WORK_FIELDS: Final = (
    time_field("horizon", "Span of the arrivals.", "horizon: 1h"),
    time_field("task_least", "Least work of a task; less is raised to it.", "task_least: 1s"),
    time_field("task_most", "Most work of a task; more is cut to it.", "task_most: 30m"),
    whole_field(
        "tasks_per_job",
        "Most tasks of a job; of more, as many evenly spaced ones stay.", "tasks_per_job: 100",
        1, TASKS_MAX,
    ),
    share_field(
        "load_spread",
        "Home loads of the clusters differ by this share up and down, before they are scaled to the load.",
        "load_spread: 0",
    ),
    choice_field(
        "resources", RESOURCE_RULES,
        "Sizes of tasks: by their `kind` of work, or as the `trace` states them, if it does.",
        "resources: trace",
    ),
    WorldField(
        name="duration_scales", kind="mapping of names to numbers", limits="0.000001 to 1,000 each",
        meaning="Factors for the durations of traces whose name contains a word, before they are cut; the "
        "first that fits.",
        example="duration_scales: {philly: 0.1}", read=factors_reader(1e-6, 1_000.0), write=write_factors,
    ),
    mapping_field(
        "tokens", TokenRules, "Seconds of work of a request to a language model (Azure LLM).",
        "tokens: {generated_seconds: 0.05}",
    ),
    mapping_field(
        "gangs", GangRules, "Jobs whose tasks start together.", "gangs: {share: 0.1, topology: rack}",
    ),
    mapping_field("deadlines", DeadlineRules, "Jobs with a deadline.", "deadlines: {share: 0.2}"),
)  # fmt: skip
"""Fields of ``work``."""

TOKEN_FIELDS: Final = (
    factor_field("base_seconds", "Seconds of every request.", "base_seconds: 0.5"),
    factor_field("context_seconds", "Seconds for each token of the context.", "context_seconds: 0.001"),
    factor_field("generated_seconds", "Seconds for each generated token.", "generated_seconds: 0.05"),
)
"""Fields of ``work.tokens``."""

GANG_FIELDS: Final = (
    share_field("share", "Share of the jobs with more than one task that are gangs.", "share: 0.1"),
    choice_field(
        "topology", GANG_TOPOLOGIES, "Place that holds all tasks of a gang; what does not fit is left out.",
        "topology: rack",
    ),
    WorldField(
        name="kinds", kind="list of names", meaning="Kinds of work that have gangs; empty: all.",
        example="kinds: [compute]", read=read_names, write=write_list,
    ),
)  # fmt: skip
"""Fields of ``work.gangs``."""

DEADLINE_FIELDS: Final = (
    share_field("share", "Share of the jobs that have a deadline.", "share: 0.2"),
    factor_field(
        "slack_least",
        "Least deadline, as a multiple of the work of the job's longest task.",
        "slack_least: 2",
    ),
    factor_field("slack_most", "Most of it; in between, all are equally likely.", "slack_most: 5"),
)
"""Fields of ``work.deadlines``."""

TABLES: Final[dict[type[msgspec.Struct], tuple[WorldField, ...]]] = {
    World: WORLD_FIELDS,
    WorkKind: KIND_FIELDS,
    NodeClass: CLASS_FIELDS,
    WorldCluster: CLUSTER_FIELDS,
    NodeRun: RUN_FIELDS,
    WorldNetwork: NETWORK_FIELDS,
    RoundTrips: TRIP_FIELDS,
    TemplateRules: TEMPLATE_FIELDS,
    DataRules: DATA_FIELDS,
    InterferenceRules: INTERFERENCE_FIELDS,
    OutageRules: FAILURE_FIELDS,
    WorkRules: WORK_FIELDS,
    TokenRules: TOKEN_FIELDS,
    GangRules: GANG_FIELDS,
    DeadlineRules: DEADLINE_FIELDS,
}
"""Rows of each record."""


def default_of(record: type[msgspec.Struct], row: WorldField) -> Any:
    """Return the value of a field that is left out; ``msgspec.NODEFAULT`` for a required one."""
    field = next(found for found in msgspec.structs.fields(record) if found.name == row.target)
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
