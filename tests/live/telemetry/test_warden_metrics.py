"""The metrics of a warden and of a runner, told a history by hand."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hanse.core.config import NodeConfig, WardenConfig
from hanse.core.warden.warden import Warden
from hanse.league.config import Address, ClusterEntry
from hanse.live.journal.journal import Journal
from hanse.live.telemetry.prometheus_text import render
from hanse.live.telemetry.warden_metrics import RunnerMetrics, WardenMetrics
from hanse.model.effects import SendMessage
from hanse.model.events import MessageReceived, Tick
from hanse.model.ids import job_id, task_id
from hanse.model.job import UnreachablePolicy
from hanse.model.messages import (
    AttemptEnd,
    ClaimReply,
    Envelope,
    Offer,
    OpenSession,
    Outcome,
    RefusalReason,
    RefusedTask,
    RunnerOrders,
    RunnerReport,
    StartTask,
    TaskUpdates,
)
from hanse.model.resources import Resources
from hanse.policy.node_rankers import FirstNodeRanker
from hanse.security.identity import Role
from tests.live.telemetry.observed_daemon import Daemon
from tests.live.telemetry.scraped import samples_of, total

ONE = Resources(1_000, 1 << 20)
NODE = NodeConfig(Resources(8_000, 1 << 30, 0, (("fpga", 2),)), (), "north/runner")
TASKS = [task_id(job_id(1, 1), index) for index in range(3)]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened, _ = Journal.open(tmp_path / "journal")
    yield opened
    opened.close()


@pytest.fixture
def watch(tmp_path: Path, journal: Journal) -> WardenMetrics:
    """The metrics of a warden of one node."""
    machine = Warden(WardenConfig("north", (NODE,), ("b1",)), FirstNodeRanker())
    entry = ClusterEntry("north", Address(), Address(), (NODE,))
    return WardenMetrics(Daemon(tmp_path, Role.WARDEN), machine, entry, journal)


def seen(watch: WardenMetrics) -> Any:
    return samples_of(render(asyncio.run(watch.own_families())))


def test_a_warden_shows_what_it_has_and_how_fast_tasks_start(watch: WardenMetrics) -> None:
    orders = RunnerOrders(
        0, tuple(StartTask(task, 1, 0, ONE, "e", UnreachablePolicy.MOVE, b"") for task in TASKS)
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
    ended = (AttemptEnd(TASKS[0], 1, Outcome.SUCCEEDED),)
    report = RunnerReport(tuple((task, 1) for task in TASKS), ended, ((0, Resources(3_000)),))
    for position in (3, 4):  # and repeated
        watch.on_event_durable(
            position, MessageReceived(1_300_000, Envelope("north/runner", "north", 1, 1, 0, report)), []
        )
    found = seen(watch)
    assert total(found, "hanse_cluster_capacity", resource="cpu") == 8
    assert total(found, "hanse_cluster_capacity", resource="fpga") == 2
    assert total(found, "hanse_cluster_allocated") == 0
    assert total(found, "hanse_cluster_withheld", resource="cpu") == 3
    assert total(found, "hanse_backend_starts_total") == 3
    assert total(found, "hanse_backend_ends_total", outcome="succeeded") == 1
    assert total(found, "hanse_start_latency_seconds_count") == 1  # of the last one
    assert total(found, "hanse_start_latency_seconds_bucket", le="0.25") == 0
    assert total(found, "hanse_start_latency_seconds_bucket", le="0.5") == 1
    assert total(found, "hanse_cluster_nodes", state="down") == 1


def test_a_warden_shows_what_it_gave_and_refused(watch: WardenMetrics) -> None:
    lost = TaskUpdates((), (AttemptEnd(TASKS[1], 1, Outcome.LOST),), (Offer(1, 1, (0,)),))
    watch.on_event_durable(1, Tick(2_000_000), [SendMessage(Envelope("north", "b1", 0, 1, 0, lost))])
    refused = ClaimReply(1, (), (RefusedTask(TASKS[2], 1, RefusalReason.FENCED),))
    watch.on_event_durable(2, Tick(2_000_000), [SendMessage(Envelope("north", "b1", 0, 2, 0, refused))])
    found = seen(watch)
    assert total(found, "hanse_grants_total") == 1
    assert total(found, "hanse_claims_refused_total", reason="fenced") == 1


def test_a_warden_shows_what_it_writes(watch: WardenMetrics, journal: Journal) -> None:
    journal.append(b"abc")
    journal.commit()
    found = seen(watch)
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
