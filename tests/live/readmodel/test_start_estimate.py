"""When and where a job would start, against cases worked out by hand."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.live.readmodel.cluster_facts import ObservedCluster, ObservedNode
from hanse.live.readmodel.start_estimate import Plan, QueuedTaskFacts, RunningTaskFacts, Start, estimate_start
from hanse.model.constraints import Is
from hanse.model.ids import SECOND
from hanse.model.job import Affinity, JobSpec, TaskGroup
from hanse.model.resources import Resources


def cpus(count: int) -> Resources:
    return Resources(cpu=count * 1_000)


def cluster(name: str, *free: int, size: int = 4, **rest: object) -> ObservedCluster:
    """Nodes of ``size`` CPUs, with so many free."""
    return ObservedCluster(name, tuple(ObservedNode(cpus(size), cpus(one)) for one in free), **rest)  # type: ignore[arg-type]


def asks(count: int, cpu: int = 1, **rest: object) -> JobSpec:
    return JobSpec((TaskGroup(count=count, ask=cpus(cpu)),), **rest)  # type: ignore[arg-type]


def runs(at: str, node: int, cpu: int, elapsed: int, *expected: int) -> RunningTaskFacts:
    return RunningTaskFacts(at, node, cpus(cpu), elapsed * SECOND, tuple(time * SECOND for time in expected))


def plan(spec: JobSpec, *facts: ObservedCluster, running: tuple[RunningTaskFacts, ...] = (),
         ahead: tuple[QueuedTaskFacts, ...] = (), seed: int = 1, **rest: object) -> Plan:  # fmt: skip
    return estimate_start(spec, facts, list(running), list(ahead), seed=seed, **rest)  # type: ignore[arg-type]


def seconds(start: Start) -> tuple[float | None, ...]:
    return tuple(None if time is None else time / SECOND for time in (start.p10, start.p50, start.p90))


def test_a_job_that_fits_starts_now() -> None:
    found = plan(asks(2), cluster("a", 0), cluster("b", 3))
    assert found.starts_now
    assert seconds(found.start) == (0, 0, 0)
    assert [(one.cluster, one.slots, one.score, one.chosen) for one in found.candidates] == [
        ("b", 3, 1_000, True),
        ("a", 0, 0, False),
    ]
    assert found.candidates[1].reason == "the best node of a has 0 CPUs free"
    assert found.unknown == ""


def test_it_goes_where_its_data_is() -> None:
    found = plan(asks(1, data=("b",)), cluster("a", 4), cluster("b", 4))
    assert [one.cluster for one in found.candidates if one.chosen] == ["b"]


def test_it_starts_when_the_first_task_that_is_known_to_end_has_ended() -> None:
    running = (runs("a", 0, 2, 3, 10), runs("a", 0, 2, 0, 30))
    found = plan(asks(1, 2), cluster("a", 0), running=running)
    assert not found.starts_now
    assert seconds(found.start) == (7, 7, 7)


def test_two_ends_must_come_together_on_one_node() -> None:
    running = (runs("a", 0, 2, 0, 10), runs("a", 1, 2, 0, 20), runs("a", 0, 2, 0, 40))
    assert seconds(plan(asks(1, 4), cluster("a", 0, 2), running=running).start) == (20, 20, 20)
    assert seconds(plan(asks(1, 4), cluster("a", 0, 0), running=running).start) == (40, 40, 40)


def test_equally_likely_run_times_give_the_quantiles() -> None:
    running = (runs("a", 0, 4, 0, *range(1, 11)),)
    found = plan(asks(1, 4), cluster("a", 0), running=running, draws=2_000)
    assert seconds(found.start) == tuple(pytest.approx(middle, abs=0.5) for middle in (1.5, 5.5, 9.5))


def test_what_a_task_has_already_run_rules_short_run_times_out() -> None:
    running = (runs("a", 0, 4, 8, 1, 2, 10),)
    assert seconds(plan(asks(1, 4), cluster("a", 0), running=running).start) == (2, 2, 2)


def test_what_waits_ahead_goes_first_and_its_own_end_counts() -> None:
    first = QueuedTaskFacts(asks(1, 4), 0, 1, (5 * SECOND,))
    found = plan(asks(1, 4), cluster("a", 0), running=(runs("a", 0, 4, 0, 10),), ahead=(first,))
    assert seconds(found.start) == (15, 15, 15)
    small = plan(asks(1, 1), cluster("a", 1), ahead=(first,))
    assert small.starts_now  # the one ahead does not fit, and what does not is overtaken


def test_what_nobody_measured_is_unknown() -> None:
    found = plan(asks(1, 4), cluster("a", 0), running=(runs("a", 0, 4, 5),))
    assert seconds(found.start) == (None, None, None)
    assert found.unknown == (
        "It depends on ends that cannot be estimated: no usable run times of 1 running task."
    )
    assert not any(one.chosen for one in found.candidates)
    outlived = plan(asks(1, 4), cluster("a", 0), running=(runs("a", 0, 4, 5, 1, 2),))
    assert seconds(outlived.start) == (None, None, None)
    silent = plan(asks(1, 4), cluster("a", 4), ahead=(QueuedTaskFacts(asks(2, 4), 0, 2),))
    assert silent.unknown == (
        "It depends on ends that cannot be estimated: no usable run times of 2 tasks ahead of it."
    )


def test_an_unknown_task_elsewhere_does_not_matter() -> None:
    running = (runs("a", 0, 4, 0), runs("a", 1, 4, 0, 6))
    found = plan(asks(1, 4), cluster("a", 0, 0), running=running)
    assert seconds(found.start) == (6, 6, 6)
    assert found.unknown == ""


def test_whoever_is_ahead_takes_what_frees_first() -> None:
    """Node a is free after 10 or after 20 seconds, b after 15: the one that is left is ours."""
    running = (runs("a", 0, 4, 0, 10, 20), runs("b", 0, 4, 0, 15))
    ahead = (QueuedTaskFacts(asks(1, 4), 0, 1),)
    found = plan(asks(1, 4), cluster("a", 0), cluster("b", 0), running=running, ahead=ahead, draws=1_000)
    assert found.start.p10 == 15 * SECOND
    assert found.start.p90 == 20 * SECOND
    scores = {one.cluster: one.score for one in found.candidates}
    assert abs(scores["a"] - 500) < 60
    assert scores["a"] + scores["b"] == 1_000


def test_some_quantiles_may_be_known_and_others_not() -> None:
    """As above, but b is forbidden: in half of all futures the one ahead has a, and nobody knows how long."""
    running = (runs("a", 0, 4, 0, 10, 20), runs("b", 0, 4, 0, 15))
    ahead = (QueuedTaskFacts(asks(1, 4), 0, 1),)
    spec = asks(1, 4, clusters_forbidden=("b",))
    found = plan(spec, cluster("a", 0), cluster("b", 0), running=running, ahead=ahead, draws=1_000)
    assert (found.start.p10, found.start.p90) == (20 * SECOND, None)
    assert found.unknown != ""


def test_what_never_fits_does_not_start() -> None:
    found = plan(asks(1, 8), cluster("a", 4))
    assert seconds(found.start) == (None, None, None)
    assert found.unknown == "In the current state it would not start: no cluster will have room for it."


def test_a_gang_starts_as_a_whole() -> None:
    running = (runs("a", 0, 4, 0, 10), runs("a", 1, 4, 0, 20))
    gang = asks(3, 2, gang=True)
    assert seconds(plan(gang, cluster("a", 0, 0), running=running).start) == (20, 20, 20)
    assert seconds(plan(asks(3, 2), cluster("a", 0, 0), running=running).start) == (10, 10, 10)
    assert plan(gang, cluster("a", 4, 2)).starts_now


def test_tasks_that_keep_apart_need_a_node_each() -> None:
    lonely = JobSpec((TaskGroup(ask=cpus(1), affinity=(Affinity("x", apart=True),)),), labels=("x",))
    many = QueuedTaskFacts(
        msgspec.structs.replace(lonely, groups=(msgspec.structs.replace(lonely.groups[0], count=2),)), 0, 2,
        (50 * SECOND,),
    )  # fmt: skip
    found = plan(asks(1, 3), cluster("a", 4, 0), running=(runs("a", 1, 4, 0, 10),), ahead=(many,))
    assert found.starts_now  # one of the two took one CPU, the other needs the other node


@pytest.mark.parametrize(
    "shut",
    [
        cluster("a", 4, draining=True),
        cluster("a", 4, reachable=False),
        cluster("a", 4, fenced=True),
        ObservedCluster("a", (ObservedNode(cpus(4), cpus(4), draining=True),)),
        ObservedCluster("a", (ObservedNode(cpus(4), cpus(4), reserved=True),)),
        ObservedCluster("a", ()),
    ],
)
def test_closed_clusters_take_nothing(shut: ObservedCluster) -> None:
    found = plan(asks(1), shut, cluster("b", 1))
    assert [one.cluster for one in found.candidates if one.chosen] == ["b"]
    assert not plan(asks(1), shut).starts_now


def test_rules_and_conditions_hold() -> None:
    zone = ObservedCluster("z", (ObservedNode(cpus(4), cpus(4), (("zone", "a"),)),))
    spec = JobSpec((TaskGroup(where=Is("zone", "a")),))
    assert [one.cluster for one in plan(spec, cluster("b", 4), zone).candidates if one.chosen] == ["z"]
    forbidden = msgspec.structs.replace(spec, clusters_forbidden=("z",))
    assert not plan(forbidden, cluster("b", 4), zone).starts_now


def test_what_is_left_out_is_said() -> None:
    spec = JobSpec((TaskGroup(ask_max=cpus(8), affinity=(Affinity("y"),)),), priority=3, after=())
    assert len(plan(spec, cluster("a", 4), ahead=(QueuedTaskFacts(asks(2, gang=True), 0, 2),)).caveats) == 4
    waits = plan(msgspec.structs.replace(spec, after=(1 << 32,)), cluster("a", 4))
    assert not waits.starts_now
    assert waits.unknown.startswith("It waits for other jobs first")
    assert plan(asks(1), cluster("a", 4)).caveats == ()


@given(
    st.integers(0, 2**32),
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 30), st.lists(st.integers(1, 60))),
        max_size=6,
    ),
    st.integers(1, 4),
)
def test_the_same_seed_gives_the_same_plan_and_quantiles_rise(
    seed: int, occupied: list[tuple[int, int, int, list[int]]], cpu: int
) -> None:
    facts = (cluster("a", 1, 0, 2), cluster("b", 0, 1, 1))
    running = tuple(runs("ab"[at], where, 2, elapsed, *times) for at, where, elapsed, times in occupied)
    spec = asks(2, cpu)
    found = plan(spec, *facts, running=running, seed=seed, draws=20)
    assert found == plan(spec, *facts, running=running, seed=seed, draws=20)
    times = [time for time in (found.start.p10, found.start.p50, found.start.p90) if time is not None]
    assert times == sorted(times)
    assert found.starts_now == (found.start.p10 == found.start.p90 == 0) == (cpu <= 2)
    assert (found.unknown == "") == (found.start.p90 is not None) or found.start.p90 is not None
    assert sum(one.chosen for one in found.candidates) <= 1
