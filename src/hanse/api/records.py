"""The requests and answers of the HTTP interface as records: the only description of its JSON.

Servers encode these records, clients decode them, and the OpenAPI document is generated from them. Amounts
are milli-CPUs, bytes, whole GPUs; times unix microseconds. A field that a broker of another version leaves
out has a default; clients ignore a field that it adds. Requests are strict: an unknown field is an error.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hanse.api.drain_facts import DrainFacts
from hanse.api.hardware import DeviceAnswer, HardwareAnswer
from hanse.api.row_records import DecisionRow, JobRow, TaskRow
from hanse.model.drains import REASON_CHARACTERS_MAX
from hanse.security.revocation_list import NAMES_MAX, SERIALS_MAX

JOBS_PER_REQUEST_MAX: Final = 10_000
STOPPED: Final = "stopped"
"""The code of an answer without a result: the member stopped during the request."""
CSR_CHARACTERS_MAX: Final = 8 << 10
HOSTS_MAX: Final = 16
REVOKED_PER_REQUEST_MAX: Final = 1_000

Serial = Annotated[str, Meta(pattern="^[0-9a-f]{1,64}$")]
"""Serial of an access token."""
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
    """A broker as another broker sees it."""

    name: str
    door: str = ""
    alive: bool = False


class ClusterAnswer(msgspec.Struct, frozen=True):
    """A cluster as a broker believes it to be."""

    name: str
    door: str = ""
    reachable: bool = False
    seen_seconds: float | None = None
    """Seconds since the last sign of life of its warden; None: never."""
    nodes: int = 0
    draining: bool | None = None
    """True if the whole cluster is drained; None: the broker does not know."""
    drains: tuple[DrainFacts, ...] = ()
    standing: float | None = None
    """1: full trust; lower: claims that it accepted did not start."""
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
    """The number of jobs in each state, of those that this broker acts for."""
    file_version: int = 0
    """Version of this broker's league file."""
    other_files: dict[str, str] = {}
    """Members that have another league file, or cannot use this one yet, and the reasons."""
    fenced: dict[str, str] = {}
    """Members that may not act, as they lost records or others remember more of them, and the reasons."""


class NodeAnswer(msgspec.Struct, frozen=True):
    """A node, from a broker (which knows neither ``up`` nor ``draining``) or from its own cluster."""

    node: int
    cluster: str = ""
    capacity: Amounts = Amounts()
    free: Amounts = Amounts()
    attributes: dict[str, str | int | bool] = {}
    reserve: bool | None = None
    """True if only latency work may use it."""
    up: bool | None = None
    draining: bool | None = None
    running: int | None = None
    """Tasks that are ordered or run there, as its own cluster reports."""
    runner: str = ""
    withheld: str = ""
    """Reason, as a clause, why the node is fully withheld; empty: it is not, or a broker answers."""
    devices: tuple[DeviceAnswer, ...] = ()
    """Devices that are assigned to tasks. Empty: there are none, or a broker answers, or the node is on
    another machine than its warden's and the league file lists none."""


class NodesAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/nodes``."""

    nodes: tuple[NodeAnswer, ...] = ()
    next: str | None = None
    """Give it as ``after`` for the next page; None: this was the last."""


class ClusterDetail(msgspec.Struct, frozen=True):
    """``GET /v1/cluster`` at a cluster's own server."""

    cluster: str
    nodes: tuple[NodeAnswer, ...] = ()
    running: int = 0
    drains: tuple[DrainFacts, ...] = ()
    backend: str = ""
    warnings: tuple[str, ...] = ()
    hardware: dict[str, HardwareAnswer] = {}
    """Machine of each runner by its name, as it was detected; only if tasks run there."""
    next: str | None = None
    """Give it as ``after`` for the next page of nodes; None: this was the last."""


class WaitAnswer(msgspec.Struct, frozen=True):
    """A task that a cluster has accepted and that waits in a queue of the cluster's own."""

    task: str
    attempt: int
    node: int
    place: str = ""
    """The cluster's own name of the node; empty: any node."""
    since: int = 0
    """Time at which the cluster accepted it, in unix microseconds."""
    reason: str = ""
    """A clause for people."""


class WaitsAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/waits/{job}`` at a cluster's own server."""

    waits: tuple[WaitAnswer, ...] = ()
    next: str | None = None
    elsewhere: tuple[int, ...] = ()
    """A node of each runner on another machine, which must be asked separately (``node``)."""


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
    """A problem of one field of a submitted job."""

    field: str
    rule: str


class SubmitResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one submitted job: exactly one of ``job``, ``problems`` and ``refused`` is there."""

    job: str = ""
    problems: tuple[Flaw, ...] = ()
    refused: str = ""
    unsure: bool = False
    """With ``refused``: the job may still be accepted; the same client id again is safe."""


class SubmitAnswer(msgspec.Struct, frozen=True):
    """``POST /v1/jobs``."""

    results: tuple[SubmitResult, ...]


class DrainAnswer(msgspec.Struct, frozen=True):
    """``POST /v1/drain``."""

    cluster: str
    nodes: tuple[int, ...] = ()
    drain: bool = True
    until: int | None = None
    """End of the drain."""


class ErrorText(msgspec.Struct, frozen=True):
    """The error of a request."""

    code: str = ""
    """A word for programs; docs/user/api.md lists them."""
    message: str = ""
    """A sentence for people."""
    hint: str = ""
    """The next step; may be empty."""
    problems: tuple[Flaw, ...] = ()
    """The problem of each wrong field, if fields are the reason."""


class ErrorAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Every answer with a status of 300 or more."""

    error: ErrorText = ErrorText()
    results: tuple[SubmitResult, ...] = ()
    """With ``bad_jobs``: the problems of each job of the request."""


class Health(msgspec.Struct, frozen=True):
    """``GET /healthz``: the process lives and answers."""

    ok: bool


class Readiness(msgspec.Struct, frozen=True):
    """``GET /readyz``: true if the member can do its work now."""

    ok: bool
    unseen: tuple[str, ...] = ()
    """Clusters not heard from since this broker was started."""


class CancelAnswer(msgspec.Struct, frozen=True):
    """``POST /v1/jobs/{id}/cancel``: the job will end, or has ended."""

    job: str


class AuthorityAnswer(msgspec.Struct, frozen=True):
    """``GET /v1/authority``: the league's authority, to compare with a join token's fingerprint."""

    authority: str
    """A certificate as PEM."""


class AuthorityKey(msgspec.Struct, frozen=True):
    """``GET /v1/authority/key``: the key with which a broker can issue certificates."""

    key: str
    """The private key as PEM. Its certificate is the one that the client trusts already."""


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
    """Data of an event ``job``: a job has changed its state."""

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
    """Data of an event ``gap``: the events after the asked id are no longer stored. List afresh."""

    asked: str
    continues: str
    """The id after which the stream continues: the same as this event's own."""


# --- requests ---


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/drain``."""

    nodes: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(max_length=100_000)] = ()
    """Node numbers."""
    whole: bool = False
    """All nodes of the cluster. Either this or ``nodes`` is required: an empty list closes nothing."""
    drain: bool = True
    reason: Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)] = ""
    """One line, shown to people who ask why nothing starts there."""
    until: Moment | None = None
    """End of the drain; only with ``drain``."""


class JoinRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/join``."""

    csr: Annotated[str, Meta(max_length=CSR_CHARACTERS_MAX)]
    token: Annotated[str, Meta(max_length=128)]
    """The token as ``hanse token create`` printed it."""
    hosts: Annotated[tuple[str, ...], Meta(max_length=HOSTS_MAX)] = ()
    """Accepted and ignored: a certificate names the hosts that the league file has for its holder."""


class RevokeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/access/revoke``."""

    names: Annotated[tuple[HolderName, ...], Meta(max_length=REVOKED_PER_REQUEST_MAX)] = ()
    """Names of people. All that they were given until now ends: access tokens, certificates, and unused join
    tokens. Members of these names are not affected."""
    serials: Annotated[tuple[Serial, ...], Meta(max_length=REVOKED_PER_REQUEST_MAX)] = ()
    """Access tokens to end."""
    own: bool = False
    """True if the client's own name may be among the names; it is refused otherwise."""


class RevokeAnswer(msgspec.Struct, frozen=True):
    """The servers that refuse what was revoked now, and those that will when they can be reached."""

    told: tuple[str, ...] = ()
    owed: tuple[str, ...] = ()


class PeopleAnswer(msgspec.Struct, frozen=True):
    """Names of people that a broker knows: people with credentials made on its machine, people who have asked
    it since its start, and people who were revoked. There may be others."""

    names: tuple[str, ...] = ()


class RevocationList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The revocations. No revocation is ever withdrawn: two lists are merged as the union of both."""

    serials: Annotated[dict[Serial, Moment], Meta(max_length=SERIALS_MAX)] = {}
    """Serial -> expiry of that token."""
    names: Annotated[dict[HolderName, Moment], Meta(max_length=NAMES_MAX)] = {}
    """Name -> time up to which all that people of this name were given has ended."""


class RenewRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of ``POST /v1/renew``."""

    csr: Annotated[str, Meta(max_length=CSR_CHARACTERS_MAX)]
