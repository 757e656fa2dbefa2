"""Advice for elastic tasks: asked for beside the rule, taken while they wait, counted when it is useless."""

from hanse.core.broker.broker import Broker
from hanse.core.broker.elastic.advice_client import ASK_PAUSE
from hanse.core.broker.elastic.advice_request import GROUPS_SHOWN_MAX, HELD_SHOWN_MAX
from hanse.model.advice import Advice, AdviceRequest
from hanse.model.decision_record import DecisionKind, DecisionRecord
from hanse.model.events import AdviceReceived
from hanse.model.ids import MINUTE, SECOND, JobId
from hanse.model.job import TaskGroup
from hanse.model.resources import Resources
from tests.core.wired import USUAL, Wired, job, node, tasks

MOST = Resources(cpu=4_000)


def elastic(count: int = 1) -> TaskGroup:
    """Tasks that are thought to run so long that no wait in these tests is in vain."""
    return TaskGroup(count=count, ask=Resources(cpu=500), ask_max=MOST, duration=400 * SECOND)


def full(*clusters: str, sizer: str = "network") -> tuple[Wired, JobId]:
    """A league in which nothing is free, and the job that holds it all."""
    wired = Wired({name: (node(4_000),) for name in clusters or ("c1",)}, sizer=sizer)
    return wired, wired.submit(job(tasks(max(1, len(clusters)), 4_000), name="full"))


def latest(wired: Wired) -> tuple[int, AdviceRequest]:
    _, command = wired.asked[-1]
    return command.number, command.request


def advise(wired: Wired, *choices: Advice, number: int = 0) -> None:
    wired.give("b1", AdviceReceived(wired.now, number or latest(wired)[0], choices))
    wired.deliver()


def sized(wired: Wired) -> list[str]:
    return [decision.reason for decision in wired.decisions if decision.kind is DecisionKind.SIZED]


def guarded(wired: Wired) -> list[DecisionRecord]:
    return [decision for decision in wired.decisions if decision.kind is DecisionKind.GUARDED]


def test_the_rule_sizes_at_once_and_a_question_goes_out() -> None:
    wired, _ = full()
    number = wired.submit(job(elastic(3)))
    assert sized(wired)[0].startswith("by the rule: 4 CPUs each")
    assert "no advice yet" in sized(wired)[0]
    _, seen = latest(wired)
    assert [(room.cluster, room.capacity, room.free, room.largest_node) for room in seen.clusters] == [
        ("c1", (4_000, 0), (0, 0), (4_000, 0))
    ]
    (group,) = seen.waiting
    assert (group.job, group.group, group.count, group.eligible_clusters) == (number, 0, 3, (0,))
    assert [(size.cpu, size.gpu) for size in group.sizes] == [(500, 0), (1_000, 0), (2_000, 0), (4_000, 0)]
    assert group.sizes[0].duration > group.sizes[-1].duration > 0
    assert seen.held == ()


def test_advice_that_comes_in_time_replaces_the_size_and_explains_itself() -> None:
    wired, blocker = full()
    number = wired.submit(job(elastic(4)))
    advise(wired, Advice(number, 0, 1_000, 0))
    reason = sized(wired)[-1]
    for words in (
        "by the network: 1 CPU each",
        "s believed",
        "with the price of what it holds (+8%)",
        "the rule would take 4 CPUs",
        "guard: no advised task has ended yet",
    ):
        assert words in reason
    wired.end(blocker)
    assert list(wired.sizes(number).values()) == [1_000] * 4
    assert wired.marks("b1")["broker.advice_taken"] == 1


def test_running_tasks_are_shown_with_what_is_believed_of_them() -> None:
    wired, blocker = full()
    number = wired.submit(job(elastic(2)))
    advise(wired, Advice(number, 0, 2_000, 0))
    wired.end(blocker)
    wired.run(3 * SECOND)
    wired.submit(job(elastic(), name="next"))
    _, seen = latest(wired)
    assert [(held.cluster_index, held.cpu, held.gpu) for held in seen.held] == [(0, 2_000, 0)] * 2
    assert all(held.elapsed >= 3 * SECOND and held.duration > 0 for held in seen.held)


def test_an_advised_cluster_is_looked_at_first() -> None:
    for wanted in ("c2", "c3"):  # the first keeps its room back for whoever waits for all of it
        wired = Wired({name: (node(4_000),) for name in ("c1", "c2", "c3")}, sizer="network")
        wired.submit(job(tasks(3, 2_500), name="most of it"))
        number = wired.submit(job(elastic()))
        assert wired.sizes(number) == {}, "the rule waits for more"
        advise(wired, Advice(number, 0, 500, 0, wanted))
        assert [cluster for cluster, _ in wired.running(number).values()] == [wanted]


def test_without_advice_the_rule_goes_on() -> None:
    wired, blocker = full()
    number = wired.submit(job(elastic()))
    wired.run(20 * SECOND)
    wired.end(blocker)
    assert list(wired.sizes(number).values()) == [4_000]


def test_other_sizers_never_ask() -> None:
    wired, _ = full(sizer="priced")
    wired.submit(job(elastic()))
    wired.run(10 * SECOND)
    assert wired.asked == []
    assert not sized(wired)[0].startswith("by the")


def test_useless_advice_is_counted_and_changes_nothing() -> None:
    wired, blocker = full()
    number = wired.submit(job(elastic(), TaskGroup(name="firm", ask=Resources(cpu=500))))
    before = len(sized(wired))
    absurd = (
        Advice(number, 0, 700, 0),
        Advice(number, 0, 500, 1),
        Advice(number, 0, -1, 1 << 62),
        Advice(number, 2, 500, 0),
        Advice(number, -1, 500, 0),
        Advice(number, 1, 500, 0),
        Advice(number, 0, 500, 0, "nowhere"),
    )
    asked, _ = latest(wired)
    advise(wired, *absurd)
    assert wired.marks("b1")["broker.advice_absurd"] == len(absurd)
    for stale in (asked, asked - 1, asked + 100, -1):
        advise(wired, Advice(number, 0, 500, 0), number=stale)
    assert wired.marks("b1")["broker.advice_stale"] == 4
    wired.run(5 * SECOND)
    advise(wired, Advice(JobId(number + 1), 0, 500, 0))
    assert wired.marks("b1")["broker.advice_late"] == 1
    assert len(sized(wired)) == before
    wired.run(5 * SECOND)
    asked, _ = latest(wired)
    wired.end(blocker)
    advise(wired, Advice(number, 0, 500, 0), number=asked)
    assert wired.marks("b1")["broker.advice_late"] == 2, "it runs already"
    assert 4_000 in wired.sizes(number).values()
    assert "broker.advice_taken" not in wired.marks("b1")


def test_one_question_at_a_time_and_again_with_a_beat() -> None:
    wired, _ = full()
    wired.submit(job(elastic()))
    first = len(wired.asked)
    wired.run(2 * ASK_PAUSE)
    wired.hand_in(job(elastic(), name="two"))
    wired.run(2 * ASK_PAUSE)
    assert len(wired.asked) == first, "one is open"
    wired.run(USUAL.beat)
    assert len(wired.asked) == first + 1
    wired.hand_in(job(elastic(), name="three"))
    wired.run(ASK_PAUSE)
    assert len(wired.asked) == first + 1
    advise(wired)
    assert len(wired.asked) == first + 2, "something has changed since it was asked"
    numbers = [command.number for _, command in wired.asked]
    assert numbers == sorted(set(numbers))
    wired.run(10 * SECOND)
    assert len(wired.asked) <= first + 2 + 10 * SECOND // USUAL.beat + 1


def test_a_question_is_bounded_and_begins_with_the_head_of_the_queue() -> None:
    wired = Wired({"c1": (node(100_000),)}, sizer="network")
    runs = wired.submit(job(elastic(HELD_SHOWN_MAX + 20), name="runs"))
    wired.run(SECOND)
    assert len(wired.sizes(runs)) > HELD_SHOWN_MAX // 4
    wired.submit(job(tasks(1, 100_000, name="rest"), clusters_forbidden=("none",)))
    jobs = [wired.submit(job(elastic(HELD_SHOWN_MAX * 9), name=f"j{n}")) for n in range(GROUPS_SHOWN_MAX + 4)]
    wired.run(2 * SECOND)
    _, seen = latest(wired)
    assert len(seen.waiting) == GROUPS_SHOWN_MAX
    waiting = [group.job for group in seen.waiting]
    assert waiting == sorted(waiting)
    assert jobs[-1] not in waiting
    assert 0 < len(seen.held) <= HELD_SHOWN_MAX


def test_advice_outlives_the_broker() -> None:
    wired, blocker = full()
    number = wired.submit(job(elastic()))
    advise(wired, Advice(number, 0, 1_000, 0))
    before = wired.machines["b1"].dump()
    fresh = wired.makers["b1"]()
    fresh.restore(before)
    assert fresh.dump() == before
    wired.restart("b1")
    wired.run(5 * SECOND)
    wired.end(blocker)
    assert list(wired.sizes(number).values()) == [1_000]
    advise(wired, Advice(number, 0, 500, 0), number=1)
    assert wired.marks("b1")["broker.advice_stale"] == 1


def test_who_waits_long_is_the_rules_whatever_was_advised() -> None:
    wired, _ = full()
    wired.machines["b1"].check()
    number = wired.submit(job(elastic()))
    advise(wired, Advice(number, 0, 4_000, 0))
    wired.submit(job(TaskGroup(ask=Resources(cpu=4_000)), name="behind"))
    wired.run(3 * MINUTE)
    assert "0.5 CPUs each: it has waited" in sized(wired)[-1]


def test_what_was_advised_is_forgotten_with_the_job() -> None:
    wired, _ = full()
    number = wired.submit(job(elastic()))
    advise(wired, Advice(number, 0, 1_000, 0))
    wired.cancel(number)
    wired.run(10 * SECOND)
    broker = wired.machines["b1"]
    assert isinstance(broker, Broker)
    assert broker._placement.sizing.advice.state.outcomes == {}
