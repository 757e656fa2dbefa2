"""The metrics of a broker, told a history by hand: each message once, every bound kept, every label sound."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hanse.core.broker.broker import Broker
from hanse.league.config import LeagueConfig
from hanse.league.reader import league_from_data
from hanse.live.clock import Clock
from hanse.live.config.config_history import BrokerSettings
from hanse.live.journal.journal import Journal
from hanse.live.readmodel.feeder import ReadModelFeeder
from hanse.live.readmodel.read_model import ReadModel
from hanse.live.telemetry import job_metrics
from hanse.live.telemetry.broker_metrics import BrokerMetrics
from hanse.live.telemetry.job_metrics import unfinished_jobs
from hanse.live.telemetry.prometheus_text import OTHER, render
from hanse.model.decision_record import DecisionKind, DecisionRecord
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
from hanse.model.history_effects import JobAdded
from hanse.model.ids import JobId, job_id, task_id
from hanse.model.job import JobSpec, TaskGroup
from hanse.model.messages import (
    AttemptEnd,
    Claim,
    ClaimReply,
    Envelope,
    Message,
    Outcome,
    RefusalReason,
    RefusedTask,
    Replica,
    ReplicateJobs,
    Shape,
    TaskBatch,
    TaskTemplate,
    TaskUpdates,
)
from hanse.model.resources import Resources
from hanse.security.identity import Role
from tests.live.telemetry.observed_daemon import Daemon
from tests.live.telemetry.scraped import samples_of, total

ONE = Resources(1_000, 1 << 20)


def broker() -> Broker:
    """The machine of the league's first broker."""
    return BrokerSettings(league().broker_config("b1"), league().policy).make_machine()


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
        added = JobAdded(job, spec, "b1#1", self.now - 5_000_000)
        self.tell(
            JobSubmitted(self.now - 5_000_000, "me", serial, spec), added, JobAccepted("me", serial, job)
        )
        return job

    def decide(self, job: JobId, answered: DecisionKind) -> None:
        self.tell(Tick(self.now), RecordDecision(DecisionRecord(self.now, "b1", job, 0, answered, 1, "so")))

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
        started = task_id(first, 0)
        story.tell(
            Tick(story.now), TaskSettled(started, 1, Outcome.FAILED), JobSettled(first, Outcome.FAILED)
        )
        story.tell(Tick(story.now), JobSettled(job_id(7, 7), Outcome.SUCCEEDED))
        story.tell(
            JobSubmitted(story.now, "me", 11, JobSpec((TaskGroup(),))), JobAccepted("me", 11, first)
        )  # late
        found = await story.seen()
        assert total(found, "hanse_jobs_submitted_total") == 2
        assert total(found, "hanse_jobs_finished_total", tenant="physics", outcome="failed") == 1
        assert total(found, "hanse_jobs_finished_total", tenant=OTHER, outcome="succeeded") == 1
        assert total(found, "hanse_tasks_finished_total", outcome="failed") == 1
        assert total(found, "hanse_pending_jobs", tenant="physics") == 0

    told(tmp_path, tale)


def test_what_a_broker_proposes_is_counted_by_what_the_cluster_makes_of_it(tmp_path: Path) -> None:
    async def tale(story: Story) -> None:
        job = story.submit(1)
        story.claim(job, 1)
        story.claim(job, 1, again=True)
        refused = (RefusedTask(task_id(job, 1), 1, RefusalReason.NO_ROOM),)
        story.hear(ClaimReply(1, (), refused))
        story.hear(ClaimReply(1, (), refused), again=True)
        story.claim(job, 2, lease=7)
        found = await story.seen()
        assert total(found, "hanse_placements_total", cluster="north", result="accepted") == 1
        assert total(found, "hanse_placements_total", cluster="north", result="refused") == 1
        assert total(found, "hanse_placements_total", cluster="north", result="bound") == 2
        assert total(found, "hanse_claim_conflicts_total", cluster="north", reason="no_room") == 1
        assert total(found, "hanse_placement_wait_seconds_count") == 1
        assert total(found, "hanse_cluster_up", cluster="north") == 0
        assert total(found, "hanse_messages_repeated_total") == 0  # that is every member's

    told(tmp_path, tale)


def test_starts_and_preemptions_are_counted_once(tmp_path: Path) -> None:
    async def tale(story: Story) -> None:
        job = story.submit(1)
        started, ended = task_id(job, 0), AttemptEnd(task_id(job, 0), 1, Outcome.PREEMPTED)
        story.hear(TaskUpdates(((started, 1, 0),), (ended,)))
        story.hear(TaskUpdates(((started, 1, 0),), (ended,)), again=True)
        found = await story.seen()
        assert total(found, "hanse_preemptions_total", cluster="north", tenant="physics") == 1
        assert total(found, "hanse_queue_wait_seconds_count", tenant="physics") == 1
        assert total(found, "hanse_queue_wait_seconds_bucket", tenant="physics", le="1.0") == 0
        assert total(found, "hanse_queue_wait_seconds_bucket", tenant="physics", le="5.0") == 1

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
