"""World as people write it: kinds of work, node classes, clusters, network, data, neighbours, failures.

A world is everything that stays the same while traces, loads and seeds change. ``world_file`` reads and
writes it as YAML, ``world_fields`` is the table of its fields, ``world_columns`` makes its columns and
``work`` the work in it. Speeds are factors: 1 is the speed of the reference node, on which a second of work
takes a second.
"""

from typing import Final

import msgspec

from hanse.model.constraints import Value
from hanse.sim.worlds.columns import WorldColumns

GIB: Final = 1 << 30
GB: Final = 1_000_000_000
MB: Final = 1_000_000
SECOND: Final = 1_000_000
GIGABIT: Final = GB // 8


class WorldError(Exception):
    """World file that cannot be used; the message names every problem found."""


class WorkKind(msgspec.Struct, frozen=True, kw_only=True):
    """Kind of work: a label that submitters give, and the traits that its jobs share on average."""

    name: str
    share: float = 1.0
    """Share of the jobs, relative to the other kinds."""
    cores: tuple[int, ...] = (2, 4, 8)
    """Cores of a task, drawn with equal odds."""
    memory_per_core: int = 2 * GIB
    gpus: int = 0
    """GPUs of a task."""
    bandwidth_per_core: int = GB
    """Memory bandwidth that a task demands for each core, in bytes per second."""
    bandwidth_sensitivity: float = 0.5
    """Slow-down by crowded memory bandwidth, relative to ``interference``."""
    cache_sensitivity: float = 0.1
    """Slow-down by neighbours that pollute all caches of the node."""
    pollution_per_core: float = 0.2
    """Cores' worth of cache pollution by each core of a task."""
    data_rate: int = MB
    """Bytes of input per second of work."""
    requires: str = ""
    """Constraint on the attributes of a node class; empty: none."""
    seconds_median: int = 30 * SECOND
    seconds_deviation: float = 1.0
    """Lognormal work of tasks whose trace states no durations: median in microseconds, and deviation."""


class NodeClass(msgspec.Struct, frozen=True, kw_only=True):
    """Node class: what equal machines have, and how fast they do each kind of work."""

    name: str
    cores: int
    memory: int
    memory_bandwidth: int = 100 * GB
    """Bytes per second."""
    gpus: int = 0
    gpu_kind: str = ""
    disk: int = 0
    """Bytes of local disk; described only."""
    speed: dict[str, float] = {}
    """Speed by kind of work; 1 for a kind that is not named."""
    attributes: dict[str, Value] = {}

    def speed_of(self, kind: str) -> float:
        """Return the mean speed of a kind of work."""
        return self.speed.get(kind, 1.0)

    def all_attributes(self) -> dict[str, Value]:
        """Return the attributes that constraints see: the written ones, the name, and the kind of GPU."""
        gpu: dict[str, Value] = {"gpu_kind": self.gpu_kind} if self.gpu_kind else {}
        return {"class": self.name, **gpu, **self.attributes}


class NodeRun(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring nodes of one class."""

    node_class: str
    count: int


class WorldCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Cluster of a world."""

    name: str
    region: str = ""
    """Region code of the round trips; empty: the cluster's name."""
    nodes: tuple[NodeRun, ...]
    """Nodes in the order of the racks, which are filled one after the other."""
    nodes_per_rack: int = 20
    topology: str = "tree"
    oversubscription: float = 4.0
    """Nodes' links of a rack together, relative to the rack's uplink."""
    wan: int = 10 * GIGABIT
    """Access to the other clusters, in bytes per second."""
    work_shares: dict[str, float] = {}
    """Shares of the kinds of work submitted here; empty: those of the kinds."""

    @property
    def region_code(self) -> str:
        """Region code of the round trips."""
        return self.region or self.name

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return sum(run.count for run in self.nodes)


class RoundTrips(msgspec.Struct, frozen=True, kw_only=True):
    """Round trips between regions."""

    origin: str = "distance"
    """Source of the figures, in words."""
    regions: tuple[str, ...] = ()
    matrix: tuple[tuple[int, ...], ...] = ()
    """Microseconds from each region to each, in the order of ``regions``."""


class WorldNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """Links and the most that one flow has, in bytes per second."""

    nic: int = 10 * GIGABIT
    """Link of a node."""
    rack_flow: int = 400 * MB
    lan_flow: int = 200 * MB
    wan_flow: int = 125 * MB
    wan_window: int = 4 * MB
    """Bytes on their way in one flow between clusters: it has at most this much per round trip."""
    round_trips: RoundTrips = RoundTrips()


class TemplateRules(msgspec.Struct, frozen=True, kw_only=True):
    """Recurring programs: how many there are, and how far each deviates from its kind of work."""

    shared: int = 120
    """Templates that all clusters submit."""
    local: int = 15
    """Templates of each cluster."""
    local_share: float = 0.1
    """Share of recurring jobs whose template is local."""
    unknown_share: float = 0.3
    """Share of jobs without history."""
    speed_deviation: float = 0.15
    demand_deviation: float = 0.3
    sensitivity_deviation: float = 0.3
    data_deviation: float = 0.5
    seed: int = 0
    """Seed of the templates: equal in all work of a world, so that what was learned stays true."""


class DataRules(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of jobs."""

    replicas: int = 2
    home_share: float = 0.7
    """Odds that a replica is in the cluster where the job is submitted."""
    holds_cores: bool = True
    """True if a task holds its cores while it reads its input."""


class InterferenceRules(msgspec.Struct, frozen=True, kw_only=True):
    """Slow-down by crowded memory bandwidth, for a sensitivity of 1."""

    knee: float = 0.3
    """Slow-down at saturation."""
    slope: float = 0.95
    """Slow-down per unit of demand beyond saturation."""


class OutageRules(msgspec.Struct, frozen=True, kw_only=True):
    """Failures of nodes, exponentially distributed; in microseconds."""

    between: int = 0
    """Mean time of a node from an outage to its next; 0: nodes do not fail."""
    length: int = 120 * SECOND


class GangRules(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs whose tasks start together."""

    share: float = 0.0
    topology: str = "cluster"
    """Place that holds them all: ``cluster``, ``rack`` or ``node``."""
    kinds: tuple[str, ...] = ()
    """Kinds of work that have gangs; empty: all."""


class DeadlineRules(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs with a deadline: a multiple of their longest task's work."""

    share: float = 0.0
    slack_least: float = 1.5
    slack_most: float = 4.0


class TokenRules(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a request to a language model, in seconds, from its tokens."""

    base_seconds: float = 0.1
    context_seconds: float = 0.0005
    """For each token of the context."""
    generated_seconds: float = 0.03
    """For each generated token."""


class WorkRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules by which traces become work."""

    horizon: int = 1_200 * SECOND
    """Span of the arrivals."""
    task_least: int = 3 * SECOND
    task_most: int = 600 * SECOND
    """Bounds of the work of a task; what is outside is cut."""
    tasks_per_job: int = 40
    """Most tasks of a job; of more, as many evenly spaced ones stay."""
    load_spread: float = 0.25
    """Home loads differ by this share up and down, before they are scaled together to the wanted load."""
    resources: str = "kind"
    """``kind``: sizes of tasks by their kind of work; ``trace``: those that the trace states."""
    duration_scales: dict[str, float] = msgspec.field(default_factory=lambda: {"gaia": 0.1, "philly": 0.1})
    """Factors for the durations of traces whose name contains a word."""
    tokens: TokenRules = TokenRules()
    gangs: GangRules = GangRules()
    deadlines: DeadlineRules = DeadlineRules()


class World(msgspec.Struct, frozen=True, kw_only=True):
    """World of unequal clusters."""

    name: str
    about: str = ""
    """Origin and purpose, for readers."""
    work_kinds: tuple[WorkKind, ...]
    node_classes: tuple[NodeClass, ...]
    clusters: tuple[WorldCluster, ...]
    network: WorldNetwork = WorldNetwork()
    templates: TemplateRules = TemplateRules()
    data: DataRules = DataRules()
    interference: InterferenceRules = InterferenceRules()
    failures: OutageRules = OutageRules()
    work: WorkRules = WorkRules()

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return sum(cluster.node_count for cluster in self.clusters)

    def columns(self) -> WorldColumns:
        """Return the columns of the world."""
        from hanse.sim.worlds.world_columns import columns_of  # noqa: PLC0415  it needs the records above

        return columns_of(self)

    def class_named(self, name: str) -> NodeClass:
        """Return the node class of a name that exists."""
        return next(found for found in self.node_classes if found.name == name)

    def without(self, effects: tuple[str, ...]) -> "World":
        """Return the same world without some of ``EFFECTS``: equal speeds, no input, no neighbours."""
        assert all(effect in EFFECTS for effect in effects), effects
        world = self
        replace = msgspec.structs.replace
        if "speed" in effects:
            classes = tuple(replace(found, speed={}) for found in world.node_classes)
            templates = replace(world.templates, speed_deviation=0.0)
            world = replace(world, node_classes=classes, templates=templates)
        if "data" in effects:
            kinds = tuple(replace(kind, data_rate=0) for kind in world.work_kinds)
            world = replace(world, work_kinds=kinds)
        if "interference" in effects:
            calm = {"bandwidth_sensitivity": 0.0, "cache_sensitivity": 0.0}
            kinds = tuple(replace(kind, **calm) for kind in world.work_kinds)
            world = replace(world, work_kinds=kinds)
        return world


EFFECTS: Final = ("speed", "data", "interference")
"""Effects that ``World.without`` can take away."""
TOPOLOGIES: Final = ("tree", "leaf-spine")
GANG_TOPOLOGIES: Final = ("cluster", "rack", "node")
"""Places that hold a gang; the code in ``WorkColumns.job_gang`` is the position plus 1."""
RESOURCE_RULES: Final = ("kind", "trace")
