"""What doors answer, as records: the parts of the HTTP interface that no other module has a record for.

Amounts are milli-CPUs, bytes, whole GPUs. What a broker of another version leaves out has a default; what it
adds is ignored.
"""

import msgspec

from hanse.live.reads.rows import DecisionRow, JobRow, TaskRow


class Amounts(msgspec.Struct, frozen=True):
    """Resources of a node or a cluster."""

    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    custom: dict[str, int] = {}


class BrokerAnswer(msgspec.Struct, frozen=True):
    """A broker as another one sees it."""

    name: str
    door: str = ""
    alive: bool = False


class ClusterAnswer(msgspec.Struct, frozen=True):
    """A cluster as a broker believes it to be."""

    name: str
    door: str = ""
    reachable: bool = False
    seen_seconds: float | None = None
    """Since its warden was last heard of; None: never."""
    nodes: int = 0
    draining: bool | None = None
    """None: the broker does not say."""
    standing: float | None = None
    """1: it keeps its word; lower: claims that it took did not start."""
    capacity: Amounts = Amounts()
    free: Amounts = Amounts()


class LeagueAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/league``."""

    league: str
    broker: str
    version: str = ""
    brokers: tuple[BrokerAnswer, ...] = ()
    clusters: tuple[ClusterAnswer, ...] = ()
    jobs: dict[str, int] = {}
    """How many jobs are in each state, of those that this broker acts for."""


class NodeAnswer(msgspec.Struct, frozen=True):
    """A node, from a broker (which knows neither ``up`` nor ``draining``) or from its own cluster."""

    node: int
    cluster: str = ""
    capacity: Amounts = Amounts()
    free: Amounts = Amounts()
    attributes: dict[str, str | int | bool] = {}
    reserve: bool | None = None
    """Whether only latency work may use it."""
    up: bool | None = None
    draining: bool | None = None
    runner: str = ""


class NodesAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/nodes``."""

    nodes: tuple[NodeAnswer, ...] = ()


class ClusterDetail(msgspec.Struct, frozen=True):
    """``GET /v1/cluster`` at a cluster's own door."""

    cluster: str
    nodes: tuple[NodeAnswer, ...] = ()
    running: int = 0
    backend: str = ""
    warnings: tuple[str, ...] = ()


class JobsAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/jobs``."""

    jobs: tuple[JobRow, ...] = ()
    next: str | None = None


class TasksAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/jobs/{id}/tasks``."""

    tasks: tuple[TaskRow, ...] = ()
    next: str | None = None


class WhyAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/jobs/{id}/why``."""

    sentences: tuple[str, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()


class Flaw(msgspec.Struct, frozen=True):
    """What is wrong with a submitted job."""

    field: str
    rule: str


class SubmitResult(msgspec.Struct, frozen=True):
    """What became of one submitted job: exactly one of ``job``, ``problems`` and ``refused`` is there."""

    job: str = ""
    problems: tuple[Flaw, ...] = ()
    refused: str = ""
    unsure: bool = False
    """With ``refused``: it may yet be accepted; the same client id again is safe."""


class SubmitAnswer(msgspec.Struct, frozen=True):
    """``POST /v1/jobs``."""

    results: tuple[SubmitResult, ...]


class DrainAnswer(msgspec.Struct, frozen=True):
    """``POST /v1/drain``."""

    cluster: str
    nodes: tuple[int, ...] = ()
    drain: bool = True


class ErrorText(msgspec.Struct, frozen=True):
    """Why a request is not met."""

    code: str = ""
    message: str = ""
    hint: str = ""


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Every answer with a status of 300 or more."""

    error: ErrorText = ErrorText()


class CandidateAnswer(msgspec.Struct, frozen=True):
    """A cluster, and how it looks for a planned job."""

    cluster: str
    slots: int = 0
    """Tasks of the first group that have room there now."""
    score: int = 0
    """In how many of a thousand draws the first task starts there."""
    reason: str = ""
    chosen: bool = False


class StartAnswer(msgspec.Struct, frozen=True):
    """Delay until the first task starts, in microseconds; None: unknown."""

    p10: int | None = None
    p50: int | None = None
    p90: int | None = None


class PlanAnswer(msgspec.Struct, frozen=True):
    """``POST /v1/plan``, as ``live.reads.estimate.Plan`` has it (which needs NumPy)."""

    starts_now: bool
    candidates: tuple[CandidateAnswer, ...] = ()
    start: StartAnswer = StartAnswer()
    unknown: str = ""
    """Why some of ``start`` is unknown, as a sentence."""
    caveats: tuple[str, ...] = ()
