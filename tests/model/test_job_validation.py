"""The rules of jobs, one by one, on the records themselves."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.constraints import Constraint, Has, Not
from hanse.model.ids import SECOND, JobId, job_id
from hanse.model.job import (
    DEADLINE_MAX,
    GRACE_MAX,
    GROUPS_MAX,
    LABELS_MAX,
    PAYLOAD_BYTES_MAX,
    Affinity,
    JobSpec,
    Proximity,
    SpeedUp,
    TaskGroup,
)
from hanse.model.job_parser import (
    PROBLEMS_MAX,
    Problem,
    check_job,
)
from hanse.model.job_validation import AFFINITIES_MAX, AFTER_MAX, CLUSTERS_MAX, SPEED_UP_POINTS_MAX
from hanse.model.resources import CPU_MILLI_MAX, CUSTOM_MAX, GPUS_MAX, MEMORY_BYTES_MAX, Resources

ONE = TaskGroup()


def job(**fields: object) -> JobSpec:
    """A sound job but for these fields."""
    return msgspec.structs.replace(JobSpec(groups=(ONE,)), **fields)


def group(**fields: object) -> JobSpec:
    """A job whose only group is sound but for these fields."""
    return JobSpec(groups=(msgspec.structs.replace(ONE, **fields),))


def graph(**needs: Sequence[str]) -> JobSpec:
    """A job with these groups and what each needs."""
    return JobSpec(groups=tuple(TaskGroup(name=name, needs=tuple(names)) for name, names in needs.items()))


def too_deep() -> Constraint:
    where: Constraint = Has("a")
    for _ in range(40):
        where = Not(where)
    return where


RANGE = {"ask": Resources(2_000, 5, 1), "ask_max": Resources(8_000, 5, 2)}


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        (job(name=""), "name", "at least one character"),
        (job(name="x" * 129), "name", "at most 128 characters"),
        (job(name=" x"), "name", "space"),
        (job(name="x "), "name", "space"),
        (job(tenant="a\x1b[31m"), "tenant", "printable"),
        (job(tenant="a\u202eb"), "tenant", "printable"),
        (job(client_id="\n"), "client_id", "printable"),
        (job(priority=1_001), "priority", "from -1000 to 1000, not 1001"),
        (job(priority=-(10**5_000)), "priority", "a number of"),
        (job(retries=-1), "retries", "from 0 to 100"),
        (job(retries=101), "retries", "from 0 to 100"),
        (job(deadline=0), "deadline", "no room"),
        (job(deadline=-1), "deadline", "negative"),
        (job(deadline=DEADLINE_MAX + 1), "deadline", "at most"),
        (job(grace=-1), "grace", "negative"),
        (job(grace=GRACE_MAX + SECOND), "grace", "at most 3600 seconds, not 3601"),
        (job(labels=("a",) * (LABELS_MAX + 1)), "labels", "at most 32"),
        (job(labels=("a", "")), "labels[1]", "at least one character"),
        (job(clusters_allowed=("a",) * (CLUSTERS_MAX + 1)), "clusters_allowed", "at most 1024"),
        (job(clusters_forbidden=("\0",)), "clusters_forbidden[0]", "printable"),
        (job(data=("",)), "data[0]", "at least one"),
        (job(clusters_allowed=("b", "a"), clusters_forbidden=("a",)), "clusters_allowed[1]", "both allowed"),
        (job(after=(JobId(5),)), "after[0]", "not the number of a job"),
        (job(after=(job_id(1, 1),) * (AFTER_MAX + 1)), "after", "at most 1024"),
        (job(groups=()), "groups", "1 to 1024 groups, not 0"),
        (JobSpec(groups=tuple(TaskGroup(name=f"g{i}") for i in range(GROUPS_MAX + 1))), "groups", "not 1025"),
        (job(groups=(ONE, TaskGroup(name="b")), gang=True), "gang", "exactly one group"),
        (job(groups=(TaskGroup(needs=("x",)),), gang=True), "groups[0].needs", "gang"),
        (group(name=""), "groups[0].name", "at least one"),
        (group(count=0), "groups[0].count", "from 1 to 1048576"),
        (
            JobSpec(groups=(TaskGroup(name="a", count=1 << 20), TaskGroup(name="b"))),
            "groups",
            "at most 1048576 tasks",
        ),
        (group(ask=Resources()), "groups[0].ask", "nothing at all"),
        (group(ask=Resources(-1)), "groups[0].ask.cpu", "from 0"),
        (group(ask=Resources(CPU_MILLI_MAX + 1)), "groups[0].ask.cpu", "from 0 to"),
        (group(ask=Resources(memory=MEMORY_BYTES_MAX + 1)), "groups[0].ask.memory", "from 0 to"),
        (group(ask=Resources(gpu=GPUS_MAX + 1)), "groups[0].ask.gpu", "from 0 to"),
        (group(ask=Resources(custom=(("x", CUSTOM_MAX + 1),))), "groups[0].ask.custom.x", "from 1 to"),
        (group(ask=Resources(1, custom=(("x", 0),))), "groups[0].ask.custom.x", "from 1 to"),
        (group(ask=Resources(custom=(("gpu", 1),))), "groups[0].ask.custom.gpu", "field of its own"),
        (group(ask=Resources(custom=(("", 1),))), "groups[0].ask.custom.", "at least one"),
        (group(ask=Resources(custom=(("b", 1), ("a", 1)))), "groups[0].ask.custom", "sorted"),
        (group(ask=Resources(custom=(("a", 1), ("a", 1)))), "groups[0].ask.custom", "named once"),
        (
            group(ask=Resources(custom=tuple((f"k{i:02}", 1) for i in range(17)))),
            "groups[0].ask.custom",
            "at most 16 kinds",
        ),
        (group(ask_max=Resources(999)), "groups[0].ask_max.cpu", "below the least"),
        (group(ask=Resources(1, 2), ask_max=Resources(1, 1)), "groups[0].ask_max.memory", "below the least"),
        (
            group(ask=Resources(1, 0, 2), ask_max=Resources(1, 0, 1)),
            "groups[0].ask_max.gpu",
            "below the least",
        ),
        (
            group(ask=Resources(1, custom=(("x", 2),)), ask_max=Resources(1)),
            "groups[0].ask_max.custom.x",
            "below the least",
        ),
        (group(speed_up=SpeedUp(((1_000, 0, 1_000),))), "groups[0].speed_up", "needs a range"),
        (group(**RANGE, speed_up=SpeedUp(())), "groups[0].speed_up", "1 to 64 points"),
        (
            group(
                **RANGE, speed_up=SpeedUp(tuple((2_000 + i, 1, 1) for i in range(SPEED_UP_POINTS_MAX + 1)))
            ),
            "groups[0].speed_up",
            "1 to 64 points",
        ),
        (group(**RANGE, speed_up=SpeedUp(((1_999, 1, 1),))), "groups[0].speed_up[0]", "outside"),
        (group(**RANGE, speed_up=SpeedUp(((2_000, 3, 1),))), "groups[0].speed_up[0]", "outside"),
        (group(**RANGE, speed_up=SpeedUp(((2_000, 1, 0),))), "groups[0].speed_up[0]", "above 0"),
        (group(**RANGE, speed_up=SpeedUp(((3_000, 1, 9), (2_000, 1, 9)))), "groups[0].speed_up", "sorted"),
        (group(**RANGE, speed_up=SpeedUp(((3_000, 1, 9), (3_000, 1, 8)))), "groups[0].speed_up", "once"),
        (group(where=too_deep()), "groups[0].where", "levels deep"),
        (group(affinity=(Affinity("\t"),)), "groups[0].affinity[0].label", "printable"),
        (group(affinity=(Affinity("a"),) * (AFFINITIES_MAX + 1)), "groups[0].affinity", "at most 16"),
        (
            group(affinity=(Affinity("a"), Affinity("a", apart=True))),
            "groups[0].affinity[1]",
            "both near and apart",
        ),
        (group(duration=0), "groups[0].duration", "no room"),
        (group(payload=b"x" * (PAYLOAD_BYTES_MAX + 1)), "groups[0].payload", "1048576 bytes, not 1048577"),
        (graph(a=["a"]), "groups[0].needs[0]", "cannot wait for itself"),
        (graph(fetch=[], build=["fetsh"]), "groups[1].needs[0]", "did you mean 'fetch'?"),
        (graph(a=["b"], b=["a"]), "groups", "a -> b -> a"),
        (graph(x=["b"], a=["c"], b=["x", "a"], c=["b"]), "groups", "x -> b -> x"),
        (graph(d=["a"], a=["b"], b=["c"], c=["a"]), "groups", ": a -> b -> c -> a"),
        (JobSpec(groups=(ONE, ONE)), "groups[1].name", "already the name of groups[0]"),
        (
            JobSpec(
                groups=tuple(TaskGroup(name=f"g{i}", payload=b"x" * PAYLOAD_BYTES_MAX) for i in range(4))
            ),
            "",
            "bytes altogether",
        ),
    ],
)
def test_each_rule(spec: JobSpec, field: str, words: str) -> None:
    problems = check_job(spec)
    assert any(problem.field == field and words in problem.rule for problem in problems), problems


def test_each_rule_is_the_only_one_broken() -> None:
    """A plain slip gives one problem, not a list to puzzle over."""
    for spec in (
        job(name=""),
        group(count=0),
        group(ask=Resources()),
        graph(a=["b"], b=["a"]),
        graph(a=["a"]),
    ):
        assert len(check_job(spec)) == 1


@pytest.mark.parametrize(
    "spec",
    [
        job(),
        job(name="x" * 128, tenant="Zürich 東京", priority=-1_000, retries=100, deadline=1, grace=0),
        job(
            clusters_allowed=("a",),
            clusters_forbidden=("b",),
            data=("a",),
            labels=("l",),
            after=(job_id(1, 0),),
        ),
        job(gang=True, groups=(TaskGroup(count=1 << 20),)),
        group(ask=Resources(custom=(("fpga", 1),))),
        group(**RANGE, speed_up=SpeedUp(((2_000, 1, 1_000), (2_000, 2, 1_500), (8_000, 1, 1_400)))),
        group(affinity=(Affinity("a"), Affinity("a", Proximity.CLUSTER, apart=True))),
        graph(a=[], b=["a"], c=["a", "b"], d=["c", "a"]),
        JobSpec(
            groups=tuple(
                TaskGroup(name=f"g{i}", needs=(f"g{i - 1}",) if i else ()) for i in range(GROUPS_MAX)
            )
        ),
    ],
)
def test_sound_jobs_have_no_problems(spec: JobSpec) -> None:
    assert check_job(spec) == ()


@given(
    st.integers(1, 7).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=3), min_size=n, max_size=n)
    )
)
def test_a_circle_is_found_exactly_when_there_is_one(needs: list[list[int]]) -> None:
    edges = [[need for need in row if need != index] for index, row in enumerate(needs)]
    spec = graph(**{f"g{index}": [f"g{need}" for need in row] for index, row in enumerate(edges)})
    left = dict(enumerate(edges))
    while ready := [index for index, row in left.items() if not any(need in left for need in row)]:
        for index in ready:
            del left[index]
    problems = check_job(spec)
    assert bool(problems) == bool(left)
    if problems:
        circle = problems[0].rule.split(": ")[1].split(" -> ")
        assert circle[0] == circle[-1]
        for one, other in pairwise(circle):
            assert int(other[1:]) in edges[int(one[1:])]


def test_many_problems_are_counted_not_listed() -> None:
    problems = check_job(job(labels=("",) * LABELS_MAX))
    assert len(problems) == PROBLEMS_MAX + 1
    assert problems[-1] == Problem("", f"and {LABELS_MAX - PROBLEMS_MAX} more")
