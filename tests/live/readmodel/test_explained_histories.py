"""Explanations of real histories, of clusters that do not answer, and of losses."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hanse.live.readmodel.cluster_facts import (
    ObservedCluster,
    ObservedNode,
)
from hanse.live.readmodel.explanation import EndCount, TaskSummary, explain
from hanse.model.decision_record import DecisionKind
from hanse.model.job import JobSpec, OnLoss, TaskGroup, UnreachablePolicy
from hanse.model.messages import Outcome
from hanse.model.resources import Resources
from tests.core.wired import job, node, tasks
from tests.live.readmodel.histories import EPOCH, Told
from tests.live.readmodel.test_explanation import NORTH, SOUTH, detail_of, said


@pytest.fixture
def league(tmp_path: Path) -> Iterator[Told]:
    told = Told(tmp_path, {"c1": (node(2_000),), "c2": (node(1_000),)})
    yield told
    told.close()


def test_a_real_history_is_explained(league: Told) -> None:
    number = league.submit(job(tasks(4), retries=1))
    reads = league.ask()
    detail = reads.job(number)
    assert detail is not None
    facts = tuple(
        ObservedCluster(name, (ObservedNode(Resources(cpu=size), Resources(cpu=0)),))
        for name, size in (("c1", 2_000), ("c2", 1_000))
    )
    sentences = explain(detail, reads.task_summary(number), reads.decisions(number), facts, now=EPOCH)
    assert sentences[0].startswith("3 of 4 tasks run in c")
    assert "c1 (2)" in sentences[0]
    assert "c2 (1)" in sentences[0]
    assert "1 waits since" in sentences[0]
    assert "because no cluster has 1 CPU free on one node" in sentences[0]
    league.end(number, 0, outcome=Outcome.FAILED, code=3)
    league.end(number, 0, outcome=Outcome.FAILED, code=127)
    league.end(number)
    league.end(number)
    reads = league.ask()
    detail = reads.job(number)
    assert detail is not None
    sentences = explain(detail, reads.task_summary(number), reads.decisions(number), facts)
    assert sentences[0].startswith("It failed at ")
    assert any("exit code 127, which usually means: there is no such program" in one for one in sentences)
    assert any(one.startswith("Started again after exit code 3") for one in sentences)


def test_a_cluster_that_has_tasks_and_does_not_answer_is_named() -> None:
    silent = msgspec.structs.replace(NORTH, reachable=False, seen=42.0)
    row = detail_of(JobSpec((TaskGroup(count=2),)), {"placed": 2})
    summary = TaskSummary(placed=(("main", "north", 2),))
    begin = "north has not answered for 42 s. If it does not answer, the 2 tasks there will "
    assert explain(row, summary, [], (silent, SOUTH))[1] == (
        f"{begin}be started elsewhere when no attempt can still run there."
    )
    assert (
        explain(row, summary, [], (silent,))[1]
        == f"{begin}wait for it, because the job may run nowhere else."
    )
    waits = detail_of(JobSpec((TaskGroup(count=2),), unreachable=UnreachablePolicy.WAIT), {"placed": 2})
    assert explain(waits, summary, [], (silent, SOUTH))[1] == f"{begin}wait for it, as the job asks."
    once = detail_of(JobSpec((TaskGroup(count=2),), on_loss=OnLoss.FAIL), {"placed": 2})
    assert explain(once, summary, [], (silent, SOUTH))[1] == (
        f"{begin}fail: a task that may have begun is not started again (on_loss: fail)."
    )


def test_a_task_that_was_lost_and_must_not_start_again_says_so() -> None:
    spec = JobSpec((TaskGroup(count=2),), on_loss=OnLoss.FAIL)
    ended = EndCount("main", "failed", "lost", 0, "", "north", 1)
    decision = said(DecisionKind.ENDED, "lost: its node was lost")
    for states, state in (({"failed": 2}, "failed"), ({"failed": 1, "running": 1}, "running")):
        told = explain(detail_of(spec, states, state=state), TaskSummary(ends=(ended,)), [decision], (NORTH,))
        lost = "it was lost, may have begun, and must not start again (on_loss: fail)"
        assert f"1 task failed in north: {lost}." in told
        assert any(
            one.startswith("Lost, and not started again, last at ")
            and one.endswith(": its node was lost (on_loss: fail).")
            for one in told
        )
    plain = detail_of(JobSpec(spec.groups), {"failed": 2}, state="failed")
    often = explain(plain, TaskSummary(ends=(ended,)), [], (NORTH,))
    assert any("lost too often" in one for one in often)
