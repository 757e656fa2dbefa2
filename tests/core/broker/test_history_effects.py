"""The history that a broker states: each fact once, in order, and nothing else than what it holds."""

from typing import Any, TypeVar

from hanse.core.broker.broker import Broker
from hanse.core.broker.job_table import CANCELLED, FAILED, SUCCEEDED, WAITING
from hanse.core.config import Timings
from hanse.model.constraints import Is
from hanse.model.effects import Effect, orders_of
from hanse.model.events import CancelRequested, Event
from hanse.model.history_effects import (
    HISTORY_EFFECTS,
    AttemptsEnded,
    CopiesAdded,
    CopiesUpdated,
    GroupUnblocked,
    JobAdded,
    JobCancelled,
    JobsTransferred,
    NodesSubstituted,
    TasksCancelled,
    TasksPlaced,
    TasksResumed,
    TasksStarted,
)
from hanse.model.ids import SECOND, job_id, task_id
from hanse.model.job import OnLoss
from hanse.model.messages import Outcome
from hanse.sim.job_history_check import JobFold
from tests.core.wired import Wired, job, node, tasks

MINUTE = 60 * SECOND
T = TypeVar("T")


class Told(Wired):
    """A wired league in which every fact is kept, and folded."""

    def __init__(self, *arguments: Any, **rest: Any) -> None:
        self.facts: dict[str, list[Any]] = {}
        self.folds: dict[str, JobFold] = {}
        super().__init__(*arguments, **rest)

    def give(self, name: str, event: Event) -> list[Effect]:
        """Note the facts of every event that reaches a broker."""
        effects = super().give(name, event)
        if isinstance(self.machines[name], Broker):
            told = [effect for effect in effects if type(effect) in HISTORY_EFFECTS]
            assert len(told) + len(orders_of(effects)) == len(effects)
            self.facts.setdefault(name, []).extend(told)
            self.folds.setdefault(name, JobFold(name)).apply(effects)
        return effects

    def of(self, kind: type[T], broker: str = "b1") -> list[T]:
        """All facts of a kind; every broker's history agrees with what it holds."""
        for name, fold in self.folds.items():
            machine = self.machines[name]
            assert isinstance(machine, Broker)
            fold.compare(machine._context.jobs, machine._standby.shards)
        return [fact for fact in self.facts[broker] if isinstance(fact, kind)]

    def kinds(self, broker: str = "b1") -> list[type]:
        """The kinds of all facts, in order."""
        return [type(fact) for fact in self.facts[broker]]

    def ends(self, broker: str = "b1") -> list[tuple[int, int, Outcome | None]]:
        """Task, next state and outcome of every end."""
        return [
            (task & 0xFFFFF, state, None if end is None else end.outcome)
            for fact in self.of(AttemptsEnded, broker)
            for task, state, end in fact.ends
        ]


class Sliced(Told):
    """The same with large jobs of more than four tasks."""

    slice_tasks = 4


# --- one life ----------------------------------------------------------------------------------------------


def test_a_task_is_placed_starts_and_ends() -> None:
    league = Told({"c1": (node(),)})
    number = league.submit(job(tasks(2)))
    league.end(number)
    added, placed, started, *ended = league.facts["b1"]
    assert (added.job, added.shard, added.accepted_at) == (number, "b1#1", 3 * SECOND)
    assert (placed.cluster, placed.batch.tasks, placed.batch.attempts) == ("c1", (0, 1), (1, 1))
    assert started == TasksStarted(((task_id(number, 0), 1, 0), (task_id(number, 1), 1, 0)))
    assert all(isinstance(fact, AttemptsEnded) for fact in ended)
    assert league.ends() == [(0, SUCCEEDED, Outcome.SUCCEEDED), (1, SUCCEEDED, Outcome.SUCCEEDED)]


def test_a_failure_with_a_retry_left_queues_the_task_again() -> None:
    league = Told({"c1": (node(),)})
    number = league.submit(job(tasks(1), retries=1))
    league.end(number, outcome=Outcome.FAILED, code=3)
    league.end(number, outcome=Outcome.FAILED, code=4)
    life = [TasksPlaced, TasksStarted, AttemptsEnded]
    assert league.kinds() == [JobAdded, *life, *life]
    assert league.ends() == [(0, WAITING, Outcome.FAILED), (0, FAILED, Outcome.FAILED)]
    assert [fact.batch.attempts for fact in league.of(TasksPlaced)] == [(1,), (2,)]


def test_a_start_of_an_older_attempt_is_no_fact() -> None:
    league = Told({"c1": (node(),)})
    number = league.submit(job(tasks(2), retries=1))
    league.end(number, 0, outcome=Outcome.FAILED, code=1)
    history = league.machines["b1"]._context.history  # type: ignore[attr-defined]
    old, other = (task_id(number, 0), 1, 0), (task_id(number, 1), 1, 0)
    history._context.effects = []
    history.start_tasks((old, other), [old])
    history.start_tasks((old,), [old])
    assert history._context.effects == [TasksStarted((other,))]
    assert [entry[1] for fact in league.of(TasksStarted) for entry in fact.entries] == [1, 1, 2]


# --- wardens -----------------------------------------------------------------------------------------------


def test_a_refusal_has_no_end() -> None:
    league = Told({"c1": (node(1_000),)}, ("b1", "b2"))
    league.hand_in(job(tasks(1)), "b1")
    league.prompt("b1")  # no time passes: b2 still sees the room
    league.hand_in(job(tasks(1)), "b2")
    league.prompt("b2")
    assert league.ends("b2") == [(0, WAITING, None)]
    assert not league.of(TasksStarted, "b2")


def test_another_node_is_told() -> None:
    league = Told({"c1": (node(1_000, zone="a"), node(1_000, zone="b"))}, ("b1", "b2"))
    league.loses = lambda envelope: envelope.source == "c1" and envelope.target == "b2"
    league.submit(job(tasks(1, where=Is("zone", "b"))), "b1")
    league.loses = lambda _: False
    number = league.submit(job(tasks(1)), "b2")  # node 1 is in its share of the nodes, and looks free
    assert [fact.batch.nodes for fact in league.of(TasksPlaced, "b2")] == [(1,)]
    assert league.of(NodesSubstituted, "b2") == [NodesSubstituted("c1", ((task_id(number, 0), 0),))]
    assert not league.of(NodesSubstituted)


def test_a_gang_that_breaks_is_queued_again_task_by_task() -> None:
    league = Told({"c1": (node(),)})
    number = league.submit(job(tasks(2), gang=True, retries=1))
    league.end(number, 0, outcome=Outcome.FAILED, code=1)
    assert league.ends() == [(0, WAITING, Outcome.FAILED), (1, WAITING, Outcome.CANCELLED)]
    assert [fact.batch.attempts for fact in league.of(TasksPlaced)] == [(1, 1), (2, 2)]


def test_what_waits_of_a_failed_gang_is_cancelled() -> None:
    league = Told({"c1": (node(),)})
    number = league.submit(job(tasks(2), gang=True))
    league.stubborn = True
    league.end(number, 0, outcome=Outcome.LOST)
    league.end(number, 1, outcome=Outcome.FAILED, code=1)
    assert league.ends() == [(0, WAITING, Outcome.LOST), (1, FAILED, Outcome.FAILED)]
    assert league.of(TasksCancelled) == [TasksCancelled(number, ((0, 1),))]


def test_what_must_not_run_twice_fails_with_its_loss() -> None:
    league = Told({"c1": (node(),)})
    number = league.submit(job(tasks(2), on_loss=OnLoss.FAIL))
    league.end(number, 0, outcome=Outcome.LOST)
    assert league.ends() == [(0, FAILED, Outcome.LOST)]


def test_attempts_in_a_cluster_that_is_given_up_are_lost() -> None:
    timings = Timings(cluster_lease=5 * SECOND, runner_lease=2 * SECOND)
    league = Told({"c1": (node(),)}, timings=timings)
    number = league.submit(job(tasks(2)))
    league.deaf["c1"] = True
    league.run(MINUTE)
    assert league.ends() == [(0, WAITING, Outcome.LOST), (1, WAITING, Outcome.LOST)]
    ends = [end for fact in league.of(AttemptsEnded) for _, _, end in fact.ends]
    assert {end.note for end in ends if end is not None} == {"c1 cannot be reached"}
    assert [end.task for end in ends if end is not None] == [task_id(number, 0), task_id(number, 1)]


# --- jobs --------------------------------------------------------------------------------------------------


def test_a_group_is_unblocked_once() -> None:
    league = Told({"c1": (node(),)})
    first = league.submit(job(tasks(1), tasks(2, name="then", needs=("main",))))
    second = league.submit(job(tasks(1), after=(first,)))
    assert not league.of(GroupUnblocked)
    league.end(first, 0)
    assert league.of(GroupUnblocked) == [GroupUnblocked(first, 1)]
    league.end(first)
    assert league.of(GroupUnblocked) == [GroupUnblocked(first, 1), GroupUnblocked(second, 0)]


def test_what_needs_a_failed_group_is_cancelled() -> None:
    league = Told({"c1": (node(),)})
    number = league.submit(job(tasks(1), tasks(2, name="then", needs=("main",))))
    league.end(number, outcome=Outcome.FAILED, code=1)
    assert league.of(TasksCancelled) == [TasksCancelled(number, ((1, 2),))]
    assert not league.of(JobCancelled)


def test_a_large_cancelled_job_is_one_fact_and_ends_in_slices() -> None:
    league = Sliced({"c1": (node(2_000),)})
    number = league.submit(job(tasks(40)))
    league.cancel(number)
    (cancelled,) = league.of(JobCancelled)
    assert cancelled == JobCancelled(number, "asked for by me")
    league.run(MINUTE)
    runs = [run for fact in league.of(TasksCancelled) for run in fact.runs]
    assert sum(count for _, count in runs) == 38
    assert max(count for _, count in runs) <= league.slice_tasks
    assert league.ends() == [(0, CANCELLED, Outcome.CANCELLED), (1, CANCELLED, Outcome.CANCELLED)]


def test_a_job_that_is_cancelled_before_its_standby_has_it_is_told() -> None:
    league = Told({"c1": (node(),)}, ("b1", "b2"))
    league.hand_in(job(tasks(1)))
    league.give("b1", CancelRequested(league.now, "me", 99, job_id(1, 0)))
    assert league.kinds()[:2] == [JobAdded, JobCancelled]
    league.run(5 * SECOND)
    assert league.over == {job_id(1, 0): Outcome.CANCELLED}
    assert league.kinds().count(JobAdded) == 1


# --- failover ----------------------------------------------------------------------------------------------


def test_a_standby_tells_of_copies_and_their_ends() -> None:
    league = Told({"c1": (node(),)}, ("b1", "b2"))
    number = league.submit(job(tasks(2)))
    league.end(number, 0)
    (added,) = league.of(CopiesAdded, "b2")
    assert (added.owner, [replica.job for replica in added.jobs]) == ("b1", [number])
    (updated,) = league.of(CopiesUpdated, "b2")
    assert updated.update.ends == ((task_id(number, 0), SUCCEEDED, 1),)


def test_a_takeover_tells_what_wardens_have_and_what_has_ended() -> None:
    league = Told({"c1": (node(),)}, ("b1", "b2"))
    number = league.submit(job(tasks(3)))
    league.end(number, 2)
    league.deaf["b1"] = True
    league.end(number, 1, outcome=Outcome.FAILED, code=7)
    league.run(MINUTE)
    assert league.of(JobsTransferred, "b2") == [JobsTransferred("b1#1", "b2", (number,))]
    first, second = task_id(number, 0), task_id(number, 1)
    assert league.of(TasksResumed, "b2") == [
        TasksResumed(number, ((first, 1, "c1"), (second, 1, "c1"))),
    ]
    assert league.ends("b2") == [(1, FAILED, Outcome.FAILED)]
    kinds = [kind for kind in league.kinds("b2") if kind in (JobsTransferred, TasksResumed, AttemptsEnded)]
    assert kinds == [JobsTransferred, TasksResumed, AttemptsEnded]
    league.boot("b1")
    league.run(MINUTE)
    assert league.of(JobsTransferred) == [JobsTransferred("b1#1", "b2", (number,))]
    assert not league.of(TasksResumed)


def test_a_former_owner_begins_anew_what_the_new_one_never_got() -> None:
    league = Told({"c1": (node(),)}, ("b1", "b2"))
    copied = league.submit(job(tasks(1)))
    league.loses = lambda envelope: (envelope.source, envelope.target) == ("b1", "b2")
    league.hand_in(job(tasks(1)))
    league.deliver()
    league.deaf["b1"] = True
    league.run(MINUTE)
    league.loses = lambda _: False
    league.boot("b1")
    league.run(MINUTE)
    assert league.of(JobsTransferred) == [JobsTransferred("b1#1", "b2", (copied,))]
    assert [(fact.job, fact.shard) for fact in league.of(JobAdded)] == [
        (copied, "b1#1"),
        (job_id(1, 1), "b1#2"),
    ]
