"""Elastic tasks whose size a sizer chooses in advance: asked for as chosen, learned from, chosen anew."""

import msgspec
import pytest

from hanse.model.decision_record import DecisionKind
from hanse.model.ids import SECOND, JobId, task_id
from hanse.model.job import TaskGroup
from hanse.model.messages import ResourceUsage
from hanse.model.resources import Resources
from tests.core.wired import Wired, job, node

MOST = Resources(cpu=4_000)


def elastic(count: int = 1) -> TaskGroup:
    return TaskGroup(count=count, ask=Resources(cpu=500), ask_max=MOST)


def league(*cpus: int) -> Wired:
    return Wired({"c1": tuple(node(cpu) for cpu in cpus or (4_000,))}, sizer="priced")


def one_thread(size: int) -> int:
    """Microseconds of a work that one CPU is enough for."""
    return 2 * SECOND * 1_000 // min(size, 1_000)


def run_all(league: Wired, number: JobId) -> list[int]:
    """Let every task of a job end after the time that it takes; the sizes, in the order they ran in."""
    sizes: list[int] = []
    while league.sizes(number):
        for index, size in sorted(league.sizes(number).items()):
            sizes.append(size)
            (attempt,) = [a for task, a in league.live if task == task_id(number, index)]
            league.exit(task_id(number, index), attempt, usage=ResourceUsage(run_time=one_thread(size)))
            league.deliver()
    return sizes


def test_it_starts_with_what_is_believed_and_settles_on_what_was_learned() -> None:
    wired = league(8_000)
    sizes = [size for _ in range(12) for size in run_all(wired, wired.submit(job(elastic(4))))]
    assert len(sizes) == 48
    assert sizes[0] == 4_000, "nothing is known: more is believed to be quicker"
    assert sizes[-8:] == [1_000] * 8


def test_waiting_tasks_change_lines_when_their_kind_has_shown_better() -> None:
    wired = league(4_000)
    number = wired.submit(job(elastic(30)))
    sizes = run_all(wired, number)
    assert sizes[0] == 4_000
    assert sizes[-1] == 1_000
    assert wired.marks("b1")["broker.resized"] > 0
    wired.run(5 * SECOND)
    wired.check_idle()


def test_a_size_that_no_node_has_is_not_chosen() -> None:
    wired = league(2_000)
    assert list(wired.sizes(wired.submit(job(elastic()))).values()) == [2_000]


def test_what_was_learned_outlives_the_broker() -> None:
    wired = league(8_000)
    for _ in range(12):
        run_all(wired, wired.submit(job(elastic(4))))
    run_all(wired, wired.submit(job(elastic())))  # the next one is no try
    before = wired.machines["b1"].dump()
    wired.restart("b1")
    wired.run(5 * SECOND)
    assert list(wired.sizes(wired.submit(job(elastic()))).values()) == [1_000]
    assert wired.machines["b1"].dump() != before


def test_kinds_are_apart() -> None:
    wired = league(8_000)
    for _ in range(12):
        run_all(wired, wired.submit(job(elastic(4), name="one")))
    assert list(wired.sizes(wired.submit(job(elastic(), name="other"))).values()) == [4_000]


def test_the_choice_is_on_record_with_its_reasons_once() -> None:
    wired = league(4_000)
    wired.submit(job(msgspec.structs.replace(elastic(3), duration=400 * SECOND)))
    wired.run(10 * SECOND)
    told = [decision for decision in wired.decisions if decision.kind is DecisionKind.SIZED]
    assert len(told) == 1
    assert "4 CPUs each" in told[0].reason
    assert "2 CPUs" in told[0].reason


@pytest.mark.parametrize(("taken", "size"), [(1_000, 2_000), (3_000, 1_000), (3_500, 500)])
def test_who_waits_in_vain_is_asked_for_less_until_it_fits(taken: int, size: int) -> None:
    wired = league(4_000)
    wired.submit(job(TaskGroup(ask=Resources(cpu=taken))))
    number = wired.submit(job(elastic()))
    wired.run(20 * SECOND)
    assert wired.sizes(number) == {0: size}


def test_who_would_run_for_long_waits_for_long_and_then_has_its_least() -> None:
    wired = league(4_000)
    wired.submit(job(TaskGroup(ask=Resources(cpu=3_000))))
    number = wired.submit(job(msgspec.structs.replace(elastic(), duration=400 * SECOND)))
    wired.run(100 * SECOND)
    assert wired.sizes(number) == {}
    wired.run(100 * SECOND)
    assert wired.sizes(number) == {0: 500}


def test_a_group_of_which_some_get_room_has_not_waited_in_vain() -> None:
    wired = league(4_000)
    number = wired.submit(job(msgspec.structs.replace(elastic(6), duration=4_000 * SECOND)))
    sizes = []
    while wired.sizes(number):
        ((index, size),) = wired.sizes(number).items()
        sizes.append(size)
        wired.run(800 * SECOND)  # nearly as long as it is thought to run; all six together much longer
        wired.end(number, index)
    assert sizes == [4_000] * 6
