"""The one table of the HTTP interface: every operation with its roles, parameters and answers.

A server mounts its handlers by this table, the auth middleware admits by it, and the OpenAPI document is
generated from it: an operation outside the table does not exist. An operation without roles is for nobody.
"""

from typing import Final

from hanse.api import league_file_records, records
from hanse.api.job_schemas import FORMS
from hanse.api.plan_records import PlanAnswer
from hanse.api.row_records import STATE_NAMES, JobDetail, JobRow
from hanse.live.http.operation_record import (
    ADMINISTER,
    ANY_ROLE,
    EVENT_STREAM,
    OCTETS,
    OPERATE,
    SUBMIT,
    VIEW,
    Location,
    Operation,
    Parameter,
)
from hanse.security.identity import MEMBERS, Role

ROWS_MAX: Final = 1_000
WAIT_SECONDS_MAX: Final = 60
ATTEMPT_MAX: Final = 1 << 40
OFFSET_MAX: Final = 1 << 62
KEY_CHARACTERS_MAX: Final = 255
TOPICS: Final = ("jobs", "clusters", "decisions")


_JOB: Final = Parameter(
    name="job",
    location=Location.PATH,
    doc="A job id: broker's number and serial.",
    pattern="^[1-9][0-9]{0,3}-(0|[1-9][0-9]{0,9})$",
    example="1-7",
)
_TASK: Final = Parameter(
    name="task",
    location=Location.PATH,
    doc="A task id: its job and its index.",
    pattern=r"^[1-9][0-9]{0,3}-(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,6})$",
    example="1-7.0",
)
_LOCAL: Final = Parameter(
    name="local",
    doc="1: answer from this broker's data, even if another one acts for the job.",
    choices=("0", "1"),
    default="0",
)
_ASKED: Final = Parameter(
    name="asked",
    doc="Brokers that have redirected here, comma-separated: none is redirected back to. In every Location.",
    pattern=r"^[^&#?]{0,4096}$",
    example="broker-1",
)
_STATE: Final = Parameter(name="state", doc="Only those in this state.", choices=STATE_NAMES)


def _limit_parameter(default: int) -> Parameter:
    return Parameter(name="limit", doc="Rows of a page at most.", bounds=(1, ROWS_MAX), default=str(default))


def _after_parameter(pattern: str, example: str) -> Parameter:
    return Parameter(
        name="after",
        doc="Begin after this row: the `next` of the page before.",
        pattern=pattern,
        example=example,
    )


_NOT_FOUND: Final = (404, "There is no such job here.")
_ELSEWHERE: Final = (
    307,
    "Another broker acts for the job: its address in Location, its name in X-Hanse-Broker.",
)

HEALTH: Final = Operation(
    name="health", verb="GET", path="/healthz", doc="The process lives and answers.", public=True,
    answer=records.Health,
)  # fmt: skip
READY: Final = Operation(
    name="ready", verb="GET", path="/readyz", public=True, answer=records.Readiness,
    doc="True if it can do its work now; 503 with the same answer if not.",
)  # fmt: skip
OPENAPI: Final = Operation(
    name="openapi", verb="GET", path="/openapi.json", doc="This document.", public=True, answer=dict, cost=5,
)  # fmt: skip
LEAGUE: Final = Operation(
    name="get_league", verb="GET", path="/v1/league", roles=ANY_ROLE, answer=records.LeagueAnswer,
    doc="The league at a glance: its brokers and clusters as this broker sees them, and its jobs counted.",
)  # fmt: skip
NODES: Final = Operation(
    name="list_nodes", verb="GET", path="/v1/nodes", roles=VIEW, answer=records.NodesAnswer,
    doc="Nodes as this broker believes them to be, by cluster and number.",
    parameters=(
        Parameter(name="cluster", doc="Only those of this cluster."),
        _limit_parameter(ROWS_MAX),
        _after_parameter(r"^[A-Za-z0-9_.-]{1,63}/[0-9]{1,9}$", "north/17"),
    ),
)  # fmt: skip
SUBMIT_JOBS: Final = Operation(
    name="submit_jobs", verb="POST", path="/v1/jobs", roles=SUBMIT, body=FORMS.request, cost=5,
    answer=records.SubmitAnswer,
    doc="Submit jobs. Answered when each is safe with a second broker, or refused. If any job is "
    "invalid, none is submitted. A job with the `client_id` of an earlier one is that earlier one.",
    parameters=(
        Parameter(
            name="Idempotency-Key", location=Location.HEADER, length_max=KEY_CHARACTERS_MAX,
            pattern="^[\\x21-\\x7e]*$",
            doc="Makes the request safe to repeat: jobs without a client_id get one made of this and of the "
            "client.",
        ),
    ),
)  # fmt: skip
LIST_JOBS: Final = Operation(
    name="list_jobs", verb="GET", path="/v1/jobs", roles=VIEW, answer=records.JobsAnswer,
    doc="Jobs that this broker knows, the newest first; other brokers' jobs as far as it knows.",
    parameters=(
        _STATE,
        Parameter(name="tenant", doc="Only jobs of this tenant."),
        Parameter(name="name", doc="Only jobs of this name."),
        _limit_parameter(50),
        _after_parameter(r"^(-?[0-9]{1,18}\.)?[1-9][0-9]{0,3}-(0|[1-9][0-9]{0,9})$", "1700000000000000.1-7"),
    ),
)  # fmt: skip
PLAN: Final = Operation(
    name="plan_job", verb="POST", path="/v1/plan", roles=VIEW, body=FORMS.job, cost=10,
    answer=PlanAnswer, doc="Estimate when and where a job would start if it were submitted now.",
)  # fmt: skip
GET_JOB: Final = Operation(
    name="get_job", verb="GET", path="/v1/jobs/{job}", roles=VIEW, answer=JobDetail,
    doc="A job with all that is known of it, except its tasks.",
    parameters=(_JOB, _LOCAL, _ASKED), refusals=(_NOT_FOUND, _ELSEWHERE),
)  # fmt: skip
TASKS: Final = Operation(
    name="list_tasks", verb="GET", path="/v1/jobs/{job}/tasks", roles=VIEW, answer=records.TasksAnswer,
    doc="A job's tasks, by index.",
    parameters=(
        _JOB, _LOCAL, _ASKED, _STATE, _limit_parameter(100),
        Parameter(
            name="after", doc="Begin after this index: the `next` of the page before.", bounds=(0, 1 << 20)
        ),
    ),
    refusals=(_NOT_FOUND, _ELSEWHERE),
)  # fmt: skip
WHY: Final = Operation(
    name="explain_job", verb="GET", path="/v1/jobs/{job}/why", roles=VIEW, answer=records.WhyAnswer, cost=2,
    doc="Explain why a job waits, runs in its place, or ended; with its latest hundred decisions.",
    parameters=(_JOB, _LOCAL, _ASKED), refusals=(_NOT_FOUND, _ELSEWHERE),
)  # fmt: skip
DECISIONS: Final = Operation(
    name="list_decisions", verb="GET", path="/v1/jobs/{job}/decisions", roles=VIEW,
    answer=records.DecisionsAnswer, doc="The decisions about a job, the oldest first.",
    parameters=(
        _JOB, _LOCAL, _ASKED, _limit_parameter(100),
        Parameter(
            name="after", doc="Begin after this decision: the `next` of the page before.",
            bounds=(0, (1 << 63) - 1),
        ),
    ),
    refusals=(_NOT_FOUND, _ELSEWHERE),
)  # fmt: skip
WAIT: Final = Operation(
    name="wait_for_job", verb="GET", path="/v1/jobs/{job}/wait", roles=VIEW, answer=JobRow, long_lived=True,
    doc="Wait for a job: answered when it has ended, or after the timeout.",
    parameters=(
        _JOB, _LOCAL, _ASKED,
        Parameter(
            name="timeout", doc="Seconds to wait at most.", bounds=(0, WAIT_SECONDS_MAX), default="30"
        ),
    ),
    refusals=(_NOT_FOUND, _ELSEWHERE),
)  # fmt: skip
CANCEL: Final = Operation(
    name="cancel_job", verb="POST", path="/v1/jobs/{job}/cancel", roles=SUBMIT, answer=records.CancelAnswer,
    cost=2,
    doc="End a job; nothing happens to one that has ended.",
    parameters=(_JOB, _LOCAL, _ASKED), refusals=(_NOT_FOUND, _ELSEWHERE),
)  # fmt: skip
EVENTS: Final = Operation(
    name="watch_events", verb="GET", path="/v1/events", roles=VIEW, media=EVENT_STREAM, cost=5,
    long_lived=True,
    doc="Server-sent events: changes of jobs, clusters and decisions as they occur. `event: job`, "
    "`decision`, `cluster` or `gap`; the data are JobEvent, DecisionEvent, ClusterAnswer, GapEvent as JSON.",
    parameters=(
        Parameter(
            name="topics", doc="The topics to send, comma-separated.", choices=TOPICS, is_list=True,
            default=",".join(TOPICS),
        ),
        Parameter(name="job", doc="Only about this job.", pattern=_JOB.pattern, example="1-7"),
        Parameter(name="tenant", doc="Only about jobs of this tenant."),
        Parameter(
            name="after",
            doc="Begin after this event: an id of this broker's, or 0 for the oldest on record. Default: "
            "with new events.",
            pattern=r"^(0|[A-Za-z0-9_.-]{1,63}/[0-9]{1,19})$", example="b1/4398046511105",
        ),
        Parameter(
            name="Last-Event-ID", location=Location.HEADER,
            pattern=r"^(|0|[A-Za-z0-9_.-]{1,63}/[0-9]{1,19})$",
            doc="The last id that was received: the same as `after`, and takes precedence.",
        ),
    ),
)  # fmt: skip
AUTHORITY: Final = Operation(
    name="get_authority", verb="GET", path="/v1/authority", public=True, answer=records.AuthorityAnswer,
    doc="The certificate of the league's authority, for newcomers who compare it with their token.",
)  # fmt: skip
_NO_AUTHORITY: Final = (503, "This broker cannot issue certificates now.")
JOIN: Final = Operation(
    name="join_league", verb="POST", path="/v1/join", public=True, body=records.JoinRequest, cost=20,
    answer=records.JoinAnswer, doc="A newcomer's first certificate, for a join token.",
    refusals=((403, "The token or the request is invalid."), _NO_AUTHORITY),
)  # fmt: skip
RENEW: Final = Operation(
    name="renew_certificate", verb="POST", path="/v1/renew", roles=ANY_ROLE, body=records.RenewRequest,
    answer=records.RenewAnswer, cost=20,
    doc="The next certificate of a holder, who shows the present one. An access token is refused, and so "
    "is a revoked certificate.",
    refusals=(_NO_AUTHORITY,),
)  # fmt: skip
AUTHORITY_KEY: Final = Operation(
    name="get_authority_key", verb="GET", path="/v1/authority/key", roles=(Role.BROKER,),
    answer=records.AuthorityKey, cost=20,
    doc="For brokers: the authority's private key, so that every broker can issue certificates.",
    refusals=((409, "The client is no broker of the league file, or was retired."), _NO_AUTHORITY),
)  # fmt: skip
REVOKE: Final = Operation(
    name="revoke_access", verb="POST", path="/v1/access/revoke", roles=ADMINISTER, body=records.RevokeRequest,
    answer=records.RevokeAnswer, cost=5,
    doc="End everything that people of a name have until now, or single access tokens. Answered when this "
    "broker refuses them for ever and every other server was tried; servers that cannot be reached now are "
    "told when they can.",
    refusals=((409, "The client's own name is among the names, and \"own\" is not true."),),
)  # fmt: skip
REVOCATIONS: Final = Operation(
    name="list_revocations", verb="GET", path="/v1/access/revocations", roles=(*ADMINISTER, *MEMBERS),
    answer=records.RevocationList, doc="All revocations that this broker knows.",
)  # fmt: skip
LIST_PEOPLE: Final = Operation(
    name="list_people", verb="GET", path="/v1/access/people", roles=ADMINISTER,
    answer=records.PeopleAnswer, cost=5,
    doc="Names of people that this broker knows of; there may be others.",
)  # fmt: skip
EXCHANGE: Final = Operation(
    name="exchange_revocations", verb="POST", path="/v1/access/revocations", roles=(Role.BROKER,),
    body=records.RevocationList, answer=records.RevocationList, cost=5,
    doc="For brokers: merge the sender's revocations into this member's; answered with all that are known.",
)  # fmt: skip
LEAGUE_FILE: Final = Operation(
    name="get_league_file", verb="GET", path="/v1/league/file", roles=(*OPERATE, *MEMBERS),
    answer=league_file_records.LeagueFile, doc="The league file, with its version.", cost=5,
)  # fmt: skip
APPLY_LEAGUE_FILE: Final = Operation(
    name="apply_league_file", verb="POST", path="/v1/league/file", roles=ADMINISTER,
    body=league_file_records.ApplyRequest, answer=league_file_records.ApplyAnswer, cost=20,
    doc="Change the league: send the present file with changes. Answered when a majority of the brokers "
    "has agreed; every member then stores it and restarts with it, one after the other.",
    refusals=((409, "The file was made from another version, or a cluster to be retired is in use."),),
)  # fmt: skip
TELL_LEAGUE_FILE: Final = Operation(
    name="tell_league_file", verb="POST", path="/v1/league/told", roles=(Role.BROKER,),
    body=league_file_records.LeagueFile, answer=league_file_records.FileStanding, cost=5,
    doc="For brokers: the league file of the sender; answered with the one of this member.",
)  # fmt: skip
TELL_FENCED: Final = Operation(
    name="tell_fenced", verb="POST", path="/v1/league/fenced", roles=MEMBERS,
    body=league_file_records.Fence, answer=league_file_records.Fence, cost=5,
    doc="For members: the sender has lost records, or its peers remember more of it, and it does not start.",
)  # fmt: skip
BALLOT: Final = Operation(
    name="vote_league_file", verb="POST", path="/v1/league/ballot", roles=(Role.BROKER,),
    body=league_file_records.BallotRequest, answer=league_file_records.BallotAnswer, cost=5,
    doc="For brokers: vote on the next version of the league file.",
)  # fmt: skip
LOGS: Final = Operation(
    name="read_output", verb="GET", path="/v1/logs/{task}", roles=VIEW, media=OCTETS, long_lived=True,
    doc="The output of a task.",
    parameters=(
        _TASK,
        Parameter(
            name="stream", doc="The stream of output.", choices=("stdout", "stderr"), default="stdout"
        ),
        Parameter(
            name="attempt", doc="The attempt; 0: the latest here.", bounds=(0, ATTEMPT_MAX), default="0"
        ),
        Parameter(name="offset", doc="Bytes to skip.", bounds=(0, OFFSET_MAX), default="0"),
        Parameter(
            name="follow", doc="1: go on until the task has ended.", choices=("0", "1"), default="0"
        ),
        Parameter(name="node", doc="The number of the node where it ran.", bounds=(0, 99_999)),
    ),
    refusals=(
        (404, "There is no output of this task here."),
        (307, "A runner on another machine has it: its address in Location, its name in X-Hanse-Runner."),
    ),
)  # fmt: skip
WAITS: Final = Operation(
    name="list_waits", verb="GET", path="/v1/waits/{job}", roles=VIEW, answer=records.WaitsAnswer,
    doc="The tasks of a job that this cluster has accepted and that wait in a queue of its own, as Slurm's, "
    "with the reason in words; by index. Tasks of a job that is not known here: none.",
    parameters=(
        _JOB, _limit_parameter(100),
        Parameter(
            name="after", doc="Begin after this index: the `next` of the page before.", bounds=(0, 1 << 20)
        ),
        Parameter(name="node", doc="Ask the runner of the node with this number.", bounds=(0, 99_999)),
    ),
    refusals=((307, "Another machine's runner knows: its address in Location, its name in X-Hanse-Runner."),),
)  # fmt: skip
CLUSTER: Final = Operation(
    name="get_cluster", verb="GET", path="/v1/cluster", roles=VIEW, answer=records.ClusterDetail,
    doc="The cluster as it reports itself, with its nodes by number.",
    parameters=(_limit_parameter(ROWS_MAX), _after_parameter("^[0-9]{1,9}$", "999")),
)  # fmt: skip
DRAIN: Final = Operation(
    name="drain_nodes", verb="POST", path="/v1/drain", roles=OPERATE, body=records.DrainRequest,
    answer=records.DrainAnswer, doc="Close nodes to new tasks, or open them again. Running tasks continue.",
)  # fmt: skip

COMMON: Final = (HEALTH, READY, OPENAPI)
METRICS: Final = Operation(
    name="metrics", verb="GET", path="/metrics", roles=VIEW, media="text/plain",
    doc="The metrics in Prometheus' text format.",
)  # fmt: skip
"""Mounted by each daemon, beside the routes of its application (``guard``)."""
BROKER: Final = (
    *COMMON, LEAGUE, NODES, SUBMIT_JOBS, LIST_JOBS, PLAN, GET_JOB, TASKS, WHY, DECISIONS, WAIT, CANCEL,
    EVENTS, AUTHORITY, AUTHORITY_KEY, JOIN, RENEW, REVOKE, REVOCATIONS, LIST_PEOPLE, EXCHANGE, LEAGUE_FILE,
    APPLY_LEAGUE_FILE, TELL_LEAGUE_FILE, TELL_FENCED, BALLOT,
)  # fmt: skip
"""Operations of a broker's server."""
RUNNER: Final = (*COMMON, LOGS, WAITS, EXCHANGE, TELL_LEAGUE_FILE)
"""Operations of the server of a runner on a machine of its own."""
WARDEN: Final = (*RUNNER, CLUSTER, DRAIN)
"""Operations of a warden's server."""
OPERATIONS_BY_ROLE: Final = {"broker": BROKER, "warden": WARDEN, "runner": RUNNER}

EVENT_RECORDS: Final = (
    records.JobEvent, records.DecisionEvent, records.ClusterAnswer, records.GapEvent,
)  # fmt: skip
"""Data of events: no answer has these records, and the document describes them nevertheless."""
