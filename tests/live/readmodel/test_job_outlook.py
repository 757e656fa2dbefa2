"""Plans of all tasks of a job: how many would start now and where, how many would wait and for what."""

import pytest

from hanse.live.readmodel.cluster_facts import ObservedCluster
from hanse.live.readmodel.job_outlook import GROUPS_SHOWN_MAX, JobOutlook
from hanse.live.readmodel.start_estimate import GROUPS_PLACED_MAX, QueuedTaskFacts
from hanse.model.ids import job_id
from hanse.model.job import Affinity, JobSpec, TaskGroup
from tests.live.readmodel.test_start_estimate import asks, cluster, cpus, plan, runs


def outlook(spec: JobSpec, *facts: ObservedCluster, ahead: tuple[QueuedTaskFacts, ...] = ()) -> JobOutlook:
    found = plan(spec, *facts, ahead=ahead)
    assert found.starts_now == bool(found.outlook.starting)
    counts = (found.outlook.starting, found.outlook.waiting, found.outlook.blocked)
    assert sum(counts) == spec.task_count
    return found.outlook


def test_an_array_that_fits_in_part() -> None:
    found = outlook(asks(12), cluster("north", 2, 0), cluster("south", 4))
    assert [(one.clusters, one.waiting, one.blocked) for one in found.groups] == [
        ({"north": 2, "south": 4}, 6, 0)
    ]
    fate, change = found.sentences
    assert fate == (
        "6 of 12 tasks would start now in north (2) and south (4); 6 would wait because no cluster has 1 CPU "
        "free on one node: the best node of north has 0 CPUs free, the best node of south has 0 CPUs free."
    )
    assert change == (
        "Something can start when a node of north has 1 CPU more free "
        "or when a node of south has 1 CPU more free."
    )


def test_an_array_that_fits() -> None:
    assert outlook(asks(4), cluster("north", 2, 4)).sentences == ("All 4 tasks would start now in north.",)
    assert outlook(asks(1), cluster("north", 2, 4)).sentences == ("The task would start now in north.",)


def test_an_array_that_waits() -> None:
    found = plan(asks(3, 2), cluster("north", 1, 0), running=(runs("north", 1, 4, 0, 10),))
    assert not found.starts_now
    assert found.outlook.sentences[0] == (
        "All 3 tasks would wait because no cluster has 2 CPUs free on one node: "
        "the best node of north has 1 CPU free."
    )


def test_what_can_never_run_is_told_with_a_remedy() -> None:
    first, remedy = outlook(asks(3, 8), cluster("north", 4)).sentences
    assert first.startswith("All 3 tasks would wait, and no cluster can ever run this: north's largest")
    assert "ask for less than 8 CPUs" in remedy


def test_every_group_is_described() -> None:
    spec = JobSpec(
        (
            TaskGroup("fetch", 2, cpus(1)),
            TaskGroup("look", 5, cpus(1)),
            TaskGroup("link", 1, cpus(4), needs=("fetch", "look")),
        )
    )
    found = outlook(spec, cluster("north", 4))
    assert (found.starting, found.waiting, found.blocked) == (4, 3, 1)
    first, second, change, last = found.sentences
    assert first == "Group fetch: All 2 tasks would start now in north."
    assert second.startswith("Group look: 2 of 5 tasks would start now in north; 3 would wait because no ")
    assert change.startswith("Something can start when a node of north has")
    assert last == "Group link: The task would be blocked until group fetch and group look have succeeded."


def test_a_job_after_others_is_blocked() -> None:
    found = outlook(asks(2, after=(job_id(1, 3),)), cluster("north", 4))
    assert found.sentences == ("All 2 tasks would be blocked until job 1-3 has succeeded.",)


def test_work_ahead_has_its_room_first() -> None:
    found = outlook(asks(4), cluster("north", 4), ahead=(QueuedTaskFacts(asks(3), 0, 3),))
    assert (found.starting, found.waiting) == (1, 3)
    assert found.sentences[-1] == "3 tasks of other jobs wait ahead of it."


def test_a_gang_starts_as_a_whole_or_not() -> None:
    assert outlook(asks(4, gang=True), cluster("north", 4)).starting == 4
    found = outlook(asks(5, gang=True), cluster("north", 4, 0))
    assert (found.starting, found.waiting) == (0, 5)
    assert "no cluster has room for all 5 at once: north has room for 4 of the 5" in found.sentences[0]


def test_one_task_per_node() -> None:
    spec = JobSpec((TaskGroup(count=3, ask=cpus(1), affinity=(Affinity("x", apart=True),)),), labels=("x",))
    found = outlook(spec, cluster("north", 4, 4))
    assert (found.starting, found.waiting) == (2, 1)
    assert "only one of its tasks" in found.sentences[0]


@pytest.mark.parametrize("groups", [GROUPS_SHOWN_MAX, GROUPS_SHOWN_MAX + 3])
def test_groups_beyond_a_bound_are_counted(groups: int) -> None:
    spec = JobSpec(tuple(TaskGroup(f"g{number}", 2, cpus(1)) for number in range(groups)))
    found = outlook(spec, cluster("north", *[4] * 4))
    assert len(found.groups) == GROUPS_SHOWN_MAX
    assert (found.starting, found.waiting) == (16, 2 * groups - 16)
    counted = [sentence for sentence in found.sentences if "more groups" in sentence]
    assert counted == ["3 more groups: 6 tasks would wait."] * (groups > GROUPS_SHOWN_MAX)


def test_a_huge_array_is_bounded_by_the_room() -> None:
    found = outlook(asks(1_000_000), cluster("north", *[4] * 100))
    assert (found.starting, found.waiting) == (400, 999_600)


def test_groups_beyond_what_is_placed_are_counted_as_waiting() -> None:
    spec = JobSpec(tuple(TaskGroup(f"g{number}", 1, cpus(1)) for number in range(GROUPS_PLACED_MAX + 5)))
    found = plan(spec, cluster("north", *[4] * 100))
    assert (found.outlook.starting, found.outlook.waiting) == (GROUPS_PLACED_MAX, 5)
    assert f"Only {GROUPS_PLACED_MAX} of its groups are placed" in found.caveats[0]
