"""What the watches count, told a history by hand: each message once, every bound kept, every label sound."""

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from hanse.core.broker.broker import Broker
from hanse.core.config import NodeConfig, WardenConfig
from hanse.core.warden.warden import Warden
from hanse.league.config import Address, ClusterEntry, LeagueConfig
from hanse.league.reader import league_from_data
from hanse.live.clock import Clock
from hanse.live.config.config_history import BrokerSettings
from hanse.live.journal.journal import Journal
from hanse.live.readmodel.feeder import ReadModelFeeder
from hanse.live.readmodel.read_model import ReadModel
from hanse.live.telemetry import job_metrics
from hanse.live.telemetry.broker_metrics import BrokerMetrics
from hanse.live.telemetry.http_metrics import NO_ROUTE, HttpMetrics
from hanse.live.telemetry.job_metrics import unfinished_jobs
from hanse.live.telemetry.link_metrics import AHEAD_MAX, LinkMetrics
from hanse.live.telemetry.prometheus_text import (
    LABEL_VALUES_MAX,
    OTHER,
    Histogram,
    LabelValues,
    counter,
    gauge,
    histogram,
    render,
    unlabelled,
)
from hanse.live.telemetry.warden_metrics import RunnerMetrics, WardenMetrics
from hanse.model.decision import Decision, DecisionKind
from hanse.model.effects import (
    Effect,
    JobAccepted,
    JobSettled,
    RecordDecision,
    RequestRejected,
    SendMessage,
    TaskSettled,
)
from hanse.model.events import Event, JobSubmitted, MessageReceived, Tick
from hanse.model.ids import JobId, job_id, task_id
from hanse.model.job import JobSpec, TaskGroup, UnreachablePolicy
from hanse.model.messages import (
    Ack,
    AttemptEnd,
    Claim,
    ClaimReply,
    Envelope,
    Message,
    Offer,
    OpenSession,
    Outcome,
    RefusalReason,
    RefusedTask,
    Replica,
    ReplicateJobs,
    RunnerOrders,
    RunnerReport,
    Shape,
    StartTask,
    TaskBatch,
    TaskTemplate,
    TaskUpdates,
)
from hanse.model.resources import Resources
from hanse.policy.node_rankers import FirstNodeRanker
from hanse.security.credentials import Credentials
from hanse.security.identity import Identity, Role
from tests.live.telemetry.scraped import samples_of, total

ONE = Resources(1_000, 1 << 20)


# --- the text ----------------------------------------------------------------------------------------------


@given(st.text(), st.floats(allow_nan=False), st.text())
def test_whatever_a_label_holds_prometheus_reads_it_back(value: str, number: float, about: str) -> None:
    text = render([gauge("hanse_x", about, [((("tenant", value),), number)])]).decode()
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    assert sample.labels == {"tenant": value.encode("utf-8", "replace").decode()}
    assert sample.value == number


def broker() -> Broker:
    """The machine of the league's first broker."""
    return BrokerSettings(league().broker_config("b1"), league().policy).make_machine()


def test_a_histogram_counts_what_lies_at_or_below_its_bounds() -> None:
    found = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 7.0, -3.0):
        found.observe(value)
    text = render([histogram("hanse_y_seconds", "Time.", [((("a", "b"),), found)])]).decode()
    (family,) = text_string_to_metric_families(text)
    assert {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels} == {
        "0.1": 3,
        "1.0": 5,
        "+Inf": 6,
    }
    sums = {sample.name: sample.value for sample in family.samples if "le" not in sample.labels}
    assert sums["hanse_y_seconds_count"] == found.count == 6
    assert math.isclose(sums["hanse_y_seconds_sum"], 8.65)


def test_a_metric_without_samples_is_named() -> None:
    assert render([counter("hanse_z_total", "Nothing yet.", [])]) == (
        b"# HELP hanse_z_total Nothing yet.\n# TYPE hanse_z_total counter\n"
    )
    with pytest.raises(AssertionError):
        counter("hanse_z", "A counter by the wrong name.", unlabelled(1))


def test_people_cannot_make_labels_without_end() -> None:
    values = LabelValues()
    seen = [values.value_of(f"tenant{number}") for number in range(LABEL_VALUES_MAX + 5)]
    assert seen[-5:] == [OTHER] * 5
    assert values.value_of("tenant3") == "tenant3"


# --- links -------------------------------------------------------------------------------------------------


def arriving(seq: int, ack: int = 0, session: int = 0) -> Envelope:
    return Envelope("peer", "me", session, seq, ack, Ack())


@given(st.lists(st.integers(1, 30), max_size=200))
def test_each_number_counts_once_in_whatever_order_it_comes(order: list[int]) -> None:
    links = LinkMetrics()
    assert links.note_received(arriving(1))
    counted = [seq for seq in order if links.note_received(arriving(seq))]
    assert sorted(counted) == sorted(set(order) - {1})


def test_what_comes_too_early_is_bounded_and_a_new_session_begins_anew() -> None:
    links = LinkMetrics()
    assert links.note_received(arriving(1))
    assert sum(links.note_received(arriving(seq)) for seq in range(3, AHEAD_MAX + 10)) == AHEAD_MAX
    assert links.note_received(arriving(1, session=5))
    assert links.note_received(arriving(2, session=5))
    assert not links.note_received(arriving(2, session=4))
    assert links.note_received(arriving(0, session=4))


def test_a_backlog_is_what_was_sent_and_not_acknowledged() -> None:
    links = LinkMetrics()

    def send(seq: int) -> bool:
        return links.note_sent(Envelope("me", "peer", 0, seq, 0, Ack()))

    assert links.backlog() == {}
    assert [send(seq) for seq in (1, 2, 3)] == [True] * 3
    assert not send(2)
    assert links.repeated == 1
    links.note_received(arriving(0, ack=1))
    assert links.backlog() == {"peer": 2}
    links.note_received(arriving(0, ack=0))  # an old word does not undo a newer one
    assert links.backlog() == {"peer": 2}
    links.note_received(arriving(0, ack=3))
    assert links.backlog() == {"peer": 0}
    assert links.sent == {"Ack": 4}


# --- doors -------------------------------------------------------------------------------------------------


def test_a_door_counts_by_route_and_not_by_what_strangers_write() -> None:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        if request.path_params["job"] == "broken":
            raise RuntimeError("a bug")
        return Response(status_code=204)

    watch = HttpMetrics()
    application = watch.wrap(Starlette(routes=[Route("/v1/jobs/{job}", answer, methods=["GET", "POST"])]))

    async def ask(method: str, path: str) -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            del message

        scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
        await application(scope, receive, send)

    async def all_of_it() -> None:
        await ask("GET", "/v1/jobs/1-7")
        await ask("GET", "/v1/jobs/1-8")
        await ask("BREW", "/v1/jobs/1-8")
        await ask("GET", "/nothing/here")
        with pytest.raises(RuntimeError):
            await ask("GET", "/v1/jobs/broken")

    asyncio.run(all_of_it())
    found = samples_of(render(watch.families()))
    route = "/v1/jobs/{job}"
    assert total(found, "hanse_door_requests_total", route=route, method="GET", status="204") == 2
    assert total(found, "hanse_door_requests_total", route=route, method="(other)", status="405") == 1
    assert total(found, "hanse_door_requests_total", route=route, method="GET", status="500") == 1
    assert total(found, "hanse_door_requests_total", route=NO_ROUTE, status="404") == 1
    assert total(found, "hanse_door_request_duration_seconds_count", route=route) == 4
    assert total(found, "hanse_door_requests_open") == 0


# --- a broker ----------------------------------------------------------------------------------------------


class Daemon:
    """What a watch asks of a daemon."""

    def __init__(self, directory: Path, role: Role) -> None:
        self.identity = Identity("league", role, "b1")
        self.directory = directory
        self.credentials = Credentials(directory)
        self.counters: dict[str, int] = {}
        self.wire_counters: dict[str, int] = {}


def league() -> LeagueConfig:
    made = league_from_data(
        {
            "brokers": [{"name": "b1"}],
            "clusters": [{"name": "north", "nodes": [{"cpus": 8, "memory": "1GiB"}]}],
        }
    )
    assert isinstance(made, LeagueConfig)
    return made


class Story:
    """A broker's history, told to its watch."""

    def __init__(self, directory: Path, feed: ReadModelFeeder, journal: Journal) -> None:
        self.watch = BrokerMetrics(Daemon(directory, Role.BROKER), broker(), Clock(), journal, feed)
        self.feed = feed
        self.position = self.seq = self.sent = 0
        self.now = Clock().now()

    def tell(self, event: Event, *commands: Effect) -> None:
        self.position += 1
        self.watch.on_event_durable(self.position, event, list(commands))

    def submit(self, serial: int, tenant: str = "physics") -> JobId:
        job = job_id(1, serial)
        spec = JobSpec((TaskGroup(count=2),), tenant=tenant)
        self.tell(JobSubmitted(self.now - 5_000_000, "me", serial, spec), JobAccepted("me", serial, job))
        return job

    def decide(self, job: JobId, answered: DecisionKind) -> None:
        self.tell(Tick(self.now), RecordDecision(Decision(self.now, "b1", job, 0, answered, 1, "so")))

    def claim(self, job: JobId, number: int, lease: int = 0, again: bool = False) -> None:
        self.sent += not again
        lot = TaskBatch(job, 0, TaskTemplate(Shape(ONE), "e"), (0, 1), (1, 1), (0, 0), ONE, lease)
        claim = Claim(number, (), 0, (lot,))
        self.tell(Tick(self.now), SendMessage(Envelope("b1", "north", 0, self.sent, 0, claim)))

    def hear(self, body: Message, again: bool = False) -> None:
        self.seq += not again
        self.tell(MessageReceived(self.now, Envelope("north", "b1", 0, self.seq, 0, body)))

    async def seen(self) -> Any:
        return samples_of(render(await self.watch.own_families()))


def told(tmp_path: Path, tale: Callable[[Story], Any]) -> None:
    """Tell a tale within an event loop, with a read model and a journal on disk."""

    async def telling() -> None:
        def fail(error: BaseException) -> None:
            raise error

        journal, _ = Journal.open(tmp_path / "journal")
        feed = ReadModelFeeder(ReadModel(tmp_path / "reads.sqlite", "b1"), fail)
        try:
            await tale(Story(tmp_path, feed, journal))
        finally:
            await feed.wait_until_caught_up()
            feed.close()
            journal.close()

    asyncio.run(telling())


def test_a_brokers_jobs_are_counted_from_arrival_to_end(tmp_path: Path) -> None:
    async def tale(story: Story) -> None:
        first, second = story.submit(1), story.submit(2, "biology")
        story.tell(
            JobSubmitted(story.now, "me", 9, JobSpec((TaskGroup(),))), RequestRejected("me", 9, "too large")
        )
        story.tell(
            JobSubmitted(story.now, "me", 10, JobSpec((TaskGroup(),))), JobAccepted("me", 10, first)
        )  # again
        story.decide(first, DecisionKind.WAITING)
        story.decide(second, DecisionKind.BLOCKED)
        found = await story.seen()
        assert total(found, "hanse_jobs_submitted_total", tenant="physics") == 1
        assert total(found, "hanse_jobs_submitted_total") == 2
        assert total(found, "hanse_jobs_rejected_total") == 1
        assert total(found, "hanse_submit_duration_seconds_count") == 3
        assert total(found, "hanse_pending_jobs", tenant="physics", reason="no_room") == 1
        assert total(found, "hanse_pending_jobs", tenant="biology", reason="other_work") == 1
        story.decide(first, DecisionKind.PLACED)
        story.claim(first, 1)
        story.claim(first, 1, again=True)
        refused = (RefusedTask(task_id(first, 1), 1, RefusalReason.NO_ROOM),)
        story.hear(ClaimReply(1, (), refused))
        story.hear(ClaimReply(1, (), refused), again=True)
        story.claim(first, 2, lease=7)
        started, ended = task_id(first, 0), AttemptEnd(task_id(first, 0), 1, Outcome.PREEMPTED)
        story.hear(TaskUpdates(((started, 1, 0),), (ended,)))
        story.hear(TaskUpdates(((started, 1, 0),), (ended,)), again=True)
        story.tell(
            Tick(story.now), TaskSettled(started, 1, Outcome.FAILED), JobSettled(first, Outcome.FAILED)
        )
        story.tell(Tick(story.now), JobSettled(job_id(7, 7), Outcome.SUCCEEDED))
        story.tell(
            JobSubmitted(story.now, "me", 11, JobSpec((TaskGroup(),))), JobAccepted("me", 11, first)
        )  # late
        found = await story.seen()
        assert total(found, "hanse_jobs_submitted_total") == 2
        assert total(found, "hanse_placements_total", cluster="north", result="accepted") == 1
        assert total(found, "hanse_placements_total", cluster="north", result="refused") == 1
        assert total(found, "hanse_placements_total", cluster="north", result="bound") == 2
        assert total(found, "hanse_claim_conflicts_total", cluster="north", reason="no_room") == 1
        assert total(found, "hanse_preemptions_total", cluster="north", tenant="physics") == 1
        assert total(found, "hanse_queue_wait_seconds_count", tenant="physics") == 1
        assert total(found, "hanse_queue_wait_seconds_bucket", tenant="physics", le="1.0") == 0
        assert total(found, "hanse_queue_wait_seconds_bucket", tenant="physics", le="5.0") == 1
        assert total(found, "hanse_placement_wait_seconds_count") == 1
        assert total(found, "hanse_jobs_finished_total", tenant="physics", outcome="failed") == 1
        assert total(found, "hanse_jobs_finished_total", tenant=OTHER, outcome="succeeded") == 1
        assert total(found, "hanse_tasks_finished_total", outcome="failed") == 1
        assert total(found, "hanse_pending_jobs", tenant="physics") == 0
        assert total(found, "hanse_cluster_up", cluster="north") == 0
        assert total(found, "hanse_messages_repeated_total") == 0  # that is every member's

    told(tmp_path, tale)


def test_a_peers_jobs_are_known_by_their_tenant_when_they_are_adopted(tmp_path: Path) -> None:
    async def tale(story: Story) -> None:
        job = job_id(2, 1)
        replica = Replica(job, JobSpec((TaskGroup(),), tenant="theirs"), 1_000, ())
        story.hear(ReplicateJobs("b2#1", 1, (replica,)))
        story.tell(Tick(story.now), JobSettled(job, Outcome.SUCCEEDED))
        found = await story.seen()
        assert total(found, "hanse_jobs_finished_total", tenant="theirs", outcome="succeeded") == 1
        assert total(found, "hanse_jobs_submitted_total") == 0

    told(tmp_path, tale)


def test_what_is_followed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_metrics, "JOBS_MAX", 3)

    async def tale(story: Story) -> None:
        jobs = [story.submit(serial) for serial in range(1, 6)]
        for job in jobs:
            story.decide(job, DecisionKind.WAITING)
        found = await story.seen()
        assert total(found, "hanse_pending_jobs", reason="no_room") == 3
        for job in jobs:
            story.tell(Tick(story.now), JobSettled(job, Outcome.SUCCEEDED))
        found = await story.seen()
        assert total(found, "hanse_jobs_finished_total", tenant=OTHER) == 2
        assert total(found, "hanse_jobs_finished_total", tenant="physics") == 3
        assert total(found, "hanse_pending_jobs") == 0

    told(tmp_path, tale)


def test_jobs_of_an_earlier_process_are_known_again(tmp_path: Path) -> None:
    async def tale(story: Story) -> None:
        job = story.submit(1)
        story.decide(job, DecisionKind.WAITING)
        await story.feed.wait_until_caught_up()
        later = BrokerMetrics(
            Daemon(tmp_path, Role.BROKER),
            broker(),
            Clock(),
            Journal.open(tmp_path / "other")[0],
            story.feed,
        )
        later.add_recovered(unfinished_jobs(story.feed.read_model))
        story.watch = later
        found = await story.seen()
        assert total(found, "hanse_pending_jobs", tenant="physics", reason="recovered") == 1
        story.tell(JobSubmitted(story.now, "me", 10, JobSpec((TaskGroup(),))), JobAccepted("me", 10, job))
        story.tell(Tick(story.now), JobSettled(job, Outcome.SUCCEEDED))
        found = await story.seen()
        assert total(found, "hanse_jobs_submitted_total") == 0  # it was submitted before
        assert total(found, "hanse_jobs_finished_total", tenant="physics") == 1

    told(tmp_path, tale)


# --- a warden and a runner ---------------------------------------------------------------------------------


def test_a_warden_shows_what_it_gave_and_how_fast_tasks_start(tmp_path: Path) -> None:
    node = NodeConfig(Resources(8_000, 1 << 30, 0, (("fpga", 2),)), (), "north/runner")
    entry = ClusterEntry("north", Address(), Address(), (node,))
    journal, _ = Journal.open(tmp_path / "journal")
    watch = WardenMetrics(
        Daemon(tmp_path, Role.WARDEN),
        Warden(WardenConfig("north", (node,), ("b1",)), FirstNodeRanker()),
        entry,
        journal,
    )
    tasks = [task_id(job_id(1, 1), index) for index in range(3)]
    orders = RunnerOrders(
        0, tuple(StartTask(task, 1, 0, ONE, "e", UnreachablePolicy.MOVE, b"") for task in tasks)
    )
    watch.on_event_durable(
        1, Tick(1_000_000), [SendMessage(Envelope("north", "north/runner", 1, 1, 0, orders))]
    )
    watch.on_event_durable(
        2, Tick(1_500_000), [SendMessage(Envelope("north", "north/runner", 1, 1, 0, orders))]
    )  # repeated
    hello = OpenSession(1, 0, (0,), (), (), ((0, Resources(4_000)),))
    watch.on_event_durable(
        2, MessageReceived(1_200_000, Envelope("north/runner", "north", 1, 0, 0, hello)), []
    )
    ended = (AttemptEnd(tasks[0], 1, Outcome.SUCCEEDED),)
    report = RunnerReport(tuple((task, 1) for task in tasks), ended, ((0, Resources(3_000)),))
    for position in (3, 4):  # and repeated
        watch.on_event_durable(
            position, MessageReceived(1_300_000, Envelope("north/runner", "north", 1, 1, 0, report)), []
        )
    lost = TaskUpdates((), (AttemptEnd(tasks[1], 1, Outcome.LOST),), (Offer(1, 1, (0,)),))
    watch.on_event_durable(5, Tick(2_000_000), [SendMessage(Envelope("north", "b1", 0, 1, 0, lost))])
    refused = ClaimReply(1, (), (RefusedTask(tasks[2], 1, RefusalReason.FENCED),))
    watch.on_event_durable(6, Tick(2_000_000), [SendMessage(Envelope("north", "b1", 0, 2, 0, refused))])
    journal.append(b"abc")
    journal.commit()
    found = samples_of(render(asyncio.run(watch.own_families())))
    journal.close()
    assert total(found, "hanse_cluster_capacity", resource="cpu") == 8
    assert total(found, "hanse_cluster_capacity", resource="fpga") == 2
    assert total(found, "hanse_cluster_allocated") == 0
    assert total(found, "hanse_cluster_withheld", resource="cpu") == 3
    assert total(found, "hanse_backend_starts_total") == 3
    assert total(found, "hanse_backend_ends_total", outcome="succeeded") == 1
    assert total(found, "hanse_start_latency_seconds_count") == 1  # of the last one
    assert total(found, "hanse_start_latency_seconds_bucket", le="0.25") == 0
    assert total(found, "hanse_start_latency_seconds_bucket", le="0.5") == 1
    assert total(found, "hanse_grants_total") == 1
    assert total(found, "hanse_claims_refused_total", reason="fenced") == 1
    assert total(found, "hanse_cluster_nodes", state="down") == 1
    assert total(found, "hanse_journal_commit_duration_seconds_count") == 1
    assert total(found, "hanse_journal_records_total") == 1
    assert total(found, "hanse_journal_bytes_total") >= 3


def test_a_runner_is_counted_by_what_it_says(tmp_path: Path) -> None:
    sent: list[Envelope] = []
    watch = RunnerMetrics(Daemon(tmp_path, Role.RUNNER), sent.append)
    task = task_id(job_id(1, 1), 0)
    report = Envelope(
        "far", "north", 1, 1, 0, RunnerReport(((task, 1),), (AttemptEnd(task, 1, Outcome.FAILED),))
    )
    watch.send(report)
    watch.send(report)
    assert sent == [report, report]
    found = samples_of(render(asyncio.run(watch.own_families())))
    assert total(found, "hanse_backend_starts_total") == 1
    assert total(found, "hanse_backend_ends_total", outcome="failed") == 1
