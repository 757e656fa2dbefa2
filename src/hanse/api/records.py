"""What doors answer and are asked, as records: the HTTP interface's one description of its JSON.

The doors encode these, the OpenAPI document is made from them, and the client decodes them. Amounts are
milli-CPUs, bytes, whole GPUs; times unix microseconds. What a broker of another version leaves out has a
default; what it adds is ignored by clients. Requests are strict instead: an unknown field is a mistake.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from hanse.api.drains import DrainFacts
from hanse.api.rows import DecisionRow, JobRow, TaskRow
from hanse.model.drains import REASON_CHARACTERS_MAX
from hanse.security.revocation_list import NAMES_MAX, SERIALS_MAX

JOBS_PER_REQUEST_MAX: Final = 10_000
STOPPED: Final = "stopped"
"""The code of an answer that says nothing: the member stopped under way."""
CSR_CHARACTERS_MAX: Final = 8 << 10
HOSTS_MAX: Final = 16
REVOKED_PER_REQUEST_MAX: Final = 1_000

Serial = Annotated[str, Meta(pattern="^[0-9a-f]{1,64}$")]
"""Of an access token."""
HolderName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,63}$")]
Moment = Annotated[int, Meta(ge=0, le=(1 << 62) - 1)]
"""Unix microseconds."""


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
    """Whether the whole of it is drained; None: the broker does not know."""
    drains: tuple[DrainFacts, ...] = ()
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
    file_version: int = 0
    """Of the league file that this broker has."""
    other_files: dict[str, str] = {}
    """Members that have another league file, or cannot live by it yet, and what is the matter."""
    fenced: dict[str, str] = {}
    """Members that may not act, because they lost records or others remember more of them, and why."""


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
    running: int | None = None
    """Tasks that are ordered or run there, by its own cluster's word."""
    runner: str = ""
    withheld: str = ""
    """Why nothing of it is for the league now, in a clause of those who run it; empty: it is, or a broker
    says this."""


class NodesAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/nodes``."""

    nodes: tuple[NodeAnswer, ...] = ()
    next: str | None = None
    """Give it as ``after`` for the next page; None: this was the last."""


class ClusterDetail(msgspec.Struct, frozen=True):
    """``GET /v1/cluster`` at a cluster's own door."""

    cluster: str
    nodes: tuple[NodeAnswer, ...] = ()
    running: int = 0
    drains: tuple[DrainFacts, ...] = ()
    backend: str = ""
    warnings: tuple[str, ...] = ()
    next: str | None = None
    """Give it as ``after`` for the next page of nodes; None: this was the last."""


class WaitAnswer(msgspec.Struct, frozen=True):
    """A task that a cluster has taken on and that waits in a queue of the cluster's own."""

    task: str
    attempt: int
    node: int
    place: str = ""
    """The node as those who run it call it; empty: any node."""
    since: int = 0
    """When it was taken on, in unix microseconds."""
    reason: str = ""
    """A clause for people."""


class WaitsAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/waits/{job}`` at a cluster's own door."""

    waits: tuple[WaitAnswer, ...] = ()
    next: str | None = None
    elsewhere: tuple[int, ...] = ()
    """A node of each runner on another machine, which must be asked by itself (``node``)."""


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


class DecisionsAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/jobs/{id}/decisions``, the oldest first."""

    decisions: tuple[DecisionRow, ...] = ()
    next: str | None = None


class Flaw(msgspec.Struct, frozen=True):
    """What is wrong with a submitted job."""

    field: str
    rule: str


class SubmitResult(msgspec.Struct, frozen=True, omit_defaults=True):
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
    until: int | None = None
    """When they open by themselves."""


class ErrorText(msgspec.Struct, frozen=True):
    """Why a request is not met."""

    code: str = ""
    """A word for programs; docs/api.md lists them."""
    message: str = ""
    """A sentence for people."""
    hint: str = ""
    """What to do next; may be empty."""
    problems: tuple[Flaw, ...] = ()
    """What is wrong with what was sent, field by field, if that is the reason."""


class ErrorAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every answer with a status of 300 or more."""

    error: ErrorText = ErrorText()
    results: tuple[SubmitResult, ...] = ()
    """With ``bad_jobs``: what is wrong with each job of the request."""


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
    """``POST /v1/plan``: ``live.readmodel.start_estimate.Plan`` without what needs NumPy."""

    starts_now: bool
    candidates: tuple[CandidateAnswer, ...] = ()
    start: StartAnswer = StartAnswer()
    unknown: str = ""
    """Why some of ``start`` is unknown, as a sentence."""
    caveats: tuple[str, ...] = ()


class Health(msgspec.Struct, frozen=True):
    """``GET /healthz``: the process lives and answers."""

    ok: bool


class Readiness(msgspec.Struct, frozen=True):
    """``GET /readyz``: whether it can do its work now."""

    ok: bool
    unseen: tuple[str, ...] = ()
    """Clusters that this broker has not heard of since it was started."""


class CancelAnswer(msgspec.Struct, frozen=True):
    """``POST /v1/jobs/{id}/cancel``: it will end, or has ended."""

    job: str


class AuthorityAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/authority``: whom the league trusts, to be compared with a join token's fingerprint."""

    authority: str
    """A certificate as PEM."""


class AuthorityKey(msgspec.Struct, frozen=True):
    """``GET /v1/authority/key``: what makes a broker able to issue certificates."""

    key: str
    """The private key as PEM. Its certificate is the one that the asker trusts already."""


class JoinAnswer(msgspec.Struct, frozen=True):
    """``POST /v1/join``."""

    certificate: str
    authority: str
    league: str
    """The league file."""


class RenewAnswer(msgspec.Struct, frozen=True):
    """``POST /v1/renew``."""

    certificate: str


# --- events ---


class JobEvent(msgspec.Struct, frozen=True):
    """Data of an event ``job``: a job has come into another state."""

    job: str
    name: str
    tenant: str
    state: str
    owner: str
    at: int | None


class DecisionEvent(msgspec.Struct, frozen=True):
    """Data of an event ``decision``: a broker has changed its answer about a group of a job's tasks."""

    job: str
    tenant: str
    decision: DecisionRow


class GapEvent(msgspec.Struct, frozen=True):
    """Data of an event ``gap``: what came after the asked id is not on record any more. List afresh."""

    asked: str
    continues: str
    """The id behind which the stream goes on: the same as this event's own."""


# --- requests ---

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Duration = str | Annotated[float, Meta(ge=0)]
"""``1h30m``, or seconds."""
Amount = str | Annotated[float, Meta(ge=0)]
"""``4GiB``, ``500m``, a number, or a range ``1..8`` for elastic work."""


class ClustersForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a job may run."""

    allow: tuple[Name, ...] | None = None
    deny: tuple[Name, ...] | None = None
    prefer: tuple[Name, ...] | None = None


class AffinityForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Near to, or apart from, tasks with a label."""

    label: Name
    scope: Literal["node", "cluster"] | None = None
    apart: bool | None = None


class CommandForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a task runs."""

    command: str | tuple[str | int, ...] | None = None
    """A text is run by /bin/sh; a list is a program and its arguments."""
    env: dict[str, str | int] | None = None
    workdir: str | int | None = None
    secret: Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$")] | None = None
    """Each attempt reads a key that is derived from it on its standard input; nobody is shown it again."""


class AskForm(CommandForm, frozen=True, kw_only=True):
    """What a task needs, and what it runs."""

    count: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None
    cpus: Amount | None = None
    memory: Amount | None = None
    gpus: Amount | None = None
    resources: dict[str, Amount] | None = None
    where: str | None = None
    affinity: tuple[AffinityForm, ...] | None = None
    needs: tuple[Name, ...] | None = None
    duration: Duration | None = None
    speed_up: tuple[tuple[Amount, Amount, Amount], ...] | None = None


class GroupForm(AskForm, frozen=True, kw_only=True):
    """One group of equal tasks."""

    name: Name | None = None


class JobForm(AskForm, frozen=True, kw_only=True):
    """A job as it is submitted; docs/reference/job-file.md has every rule. A job of one group may have the
    group's fields at the top instead of ``groups``. A field that is null counts as not written."""

    name: Name | None = None
    tenant: Name | None = None
    klass: Literal["batch", "latency"] | None = msgspec.field(name="class", default=None)
    priority: Annotated[int, Meta(ge=-1_000, le=1_000)] | None = None
    deadline: Duration | None = None
    retries: Annotated[int, Meta(ge=0, le=100)] | None = None
    preemptible: bool | None = None
    grace: Duration | None = None
    gang: bool | None = None
    unreachable: Literal["move", "wait"] | None = None
    on_loss: Literal["retry", "fail"] | None = None
    clusters: ClustersForm | None = None
    labels: tuple[Name, ...] | None = None
    after: tuple[Annotated[str, Meta(pattern="^[1-9][0-9]*-(0|[1-9][0-9]*)$")], ...] | None = None
    client_id: Annotated[str, Meta(max_length=128)] | None = None
    """Empty: none."""
    trace: str | None = None
    """A W3C traceparent."""
    groups: tuple[GroupForm, ...] | None = None


class SubmitRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/jobs``."""

    jobs: Annotated[tuple[JobForm, ...], Meta(min_length=1, max_length=JOBS_PER_REQUEST_MAX)]


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/drain``."""

    nodes: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(max_length=100_000)] = ()
    """By number."""
    whole: bool = False
    """All nodes of the cluster. Either this or ``nodes`` is given: no list that came out empty closes it."""
    drain: bool = True
    reason: Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)] = ""
    """One line, shown to whoever asks why nothing starts there."""
    until: Moment | None = None
    """When they open by themselves; only with ``drain``."""


class JoinRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/join``."""

    csr: Annotated[str, Meta(max_length=CSR_CHARACTERS_MAX)]
    token: Annotated[str, Meta(max_length=128)]
    """As ``hanse token create`` printed it."""
    hosts: Annotated[tuple[str, ...], Meta(max_length=HOSTS_MAX)] = ()
    """Taken and not used: a certificate names the hosts that the league file has for its holder."""


class RevokeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/access/revoke``."""

    names: Annotated[tuple[HolderName, ...], Meta(max_length=REVOKED_PER_REQUEST_MAX)] = ()
    """Everything that people of these names were given until now ends: access tokens, certificates, and join
    tokens that were not used yet. Members of these names go on."""
    serials: Annotated[tuple[Serial, ...], Meta(max_length=REVOKED_PER_REQUEST_MAX)] = ()
    """These access tokens end."""
    own: bool = False
    """Whether the asker's own name may be among the names; it is refused otherwise."""


class RevokeAnswer(msgspec.Struct, frozen=True):
    """Whose doors refuse what was revoked now, and whose will when they can be reached."""

    told: tuple[str, ...] = ()
    owed: tuple[str, ...] = ()


class PeopleAnswer(msgspec.Struct, frozen=True):
    """Names of people that a broker has reason to believe in: whom something was made for on its machine, who
    has asked it something since it was started, and who was revoked. There may be others."""

    names: tuple[str, ...] = ()


class RevocationList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is revoked. Nothing is ever taken back: two lists are joined by taking everything of both."""

    serials: Annotated[dict[Serial, Moment], Meta(max_length=SERIALS_MAX)] = {}
    """Serial -> when that token expires anyway."""
    names: Annotated[dict[HolderName, Moment], Meta(max_length=NAMES_MAX)] = {}
    """Name -> what people of this name were given up to then has ended."""


class RenewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/renew``."""

    csr: Annotated[str, Meta(max_length=CSR_CHARACTERS_MAX)]
