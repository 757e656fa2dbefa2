"""Advice for elastic tasks: asked for beside the rule, taken while they wait, counted when it is useless."""

import pytest

from hanse.core.broker.broker import Broker
from hanse.core.broker.elastic import advice_guard
from hanse.core.broker.elastic.advice import ASK_PAUSE
from hanse.core.broker.elastic.advice_guard import (
    ENDS_KEPT,
    ENDS_MIN,
    RATIO_MAX,
    RULE_EVERY,
    SUSPENSION,
    AdviceGuard,
    RatioStats,
)
from hanse.core.broker.elastic.advice_request import GROUPS_SHOWN_MAX, HELD_SHOWN_MAX
from hanse.model.advice import Advice, AdviceRequest
from hanse.model.decision import Decision, DecisionKind
from hanse.model.events import AdviceReceived
from hanse.model.ids import MINUTE, SECOND, JobId, job_of, task_id
from hanse.model.job import TaskGroup
from hanse.model.messages import ResourceUsage
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


def guarded(wired: Wired) -> list[Decision]:
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


# --- the guard ----------------------------------------------------------------------------------------------


def one_thread(size: int) -> int:
    """Microseconds of a work that one CPU is enough for."""
    return 200 * SECOND * 1_000 // min(size, 1_000)


def lesson(wired: Wired, cpu: int, count: int = 4) -> list[int]:
    """A job waits, is advised, and runs; the sizes that its tasks had."""
    blocker = wired.submit(job(tasks(1, 4_000), name="full"))
    number = wired.submit(job(elastic(count)))
    wired.run(2 * SECOND)
    advise(wired, Advice(number, 0, cpu, 0))
    wired.end(blocker)
    sizes: list[int] = []
    while wired.sizes(number):
        for index, size in sorted(wired.sizes(number).items()):
            sizes.append(size)
            (attempt,) = [a for task, a in wired.live if task == task_id(number, index)]
            wired.exit(task_id(number, index), attempt, usage=ResourceUsage(run_time=one_thread(size)))
            wired.run(SECOND)
    return sizes


def taught() -> Wired:
    """A league that knows well how long its tasks take."""
    wired = Wired({"c1": (node(4_000),)}, sizer="network")
    for _ in range(10):  # every second one is the rule's, which tries all sizes
        lesson(wired, 1_000)
    return wired


def until_guarded(wired: Wired) -> None:
    for _ in range(40):
        lesson(wired, 4_000)
        if guarded(wired):
            return
    raise AssertionError("bad advice is followed for ever")


def test_advice_that_costs_more_is_put_aside_and_says_why() -> None:
    wired = taught()
    assert not guarded(wired)
    until_guarded(wired)
    (verdict,) = guarded(wired)
    assert "the network is put aside for default/job/main" in verdict.reason
    assert "advised tasks cost" in verdict.reason
    assert "of the rule's" in verdict.reason
    assert "they cost more than 5% more beyond doubt, and end no sooner" in verdict.reason
    taken, asked = wired.marks("b1")["broker.advice_taken"], len(wired.asked)
    blocker = wired.submit(job(tasks(1, 4_000), name="full"))
    number = wired.submit(job(elastic(4)))
    wired.run(5 * SECOND)
    assert len(wired.asked) == asked, "nobody would follow it"
    assert "by the rule" in sized(wired)[-1]
    assert "the network is put aside" in sized(wired)[-1]
    other = wired.submit(job(elastic(), name="other"))
    advise(wired, Advice(number, 0, 4_000, 0), Advice(other, 0, 1_000, 0))
    assert wired.marks("b1")["broker.advice_taken"] == taken + 1, "kinds are apart"
    assert wired.marks("b1")["broker.advice_put_aside"] == 1
    wired.end(blocker)
    assert 4_000 not in wired.sizes(number).values()


def test_a_restart_lifts_nothing_and_time_does() -> None:
    wired = taught()
    until_guarded(wired)
    wired.restart("b1")
    asked = len(wired.asked)
    blocker = wired.submit(job(tasks(1, 4_000), name="full"))
    number = wired.submit(job(elastic(4)))
    wired.run(5 * SECOND)
    assert len(wired.asked) == asked
    wired.cancel(number)
    wired.end(blocker)
    wired.run(SUSPENSION)
    lesson(wired, 1_000)
    lesson(wired, 1_000)
    assert wired.marks("b1")["broker.advice_taken"] > 0, "it gets another chance"


def test_what_waits_goes_back_to_the_rule_with_its_kind() -> None:
    wired = taught()
    waits = False
    for _ in range(60):
        blocker = wired.submit(job(tasks(1, 4_000), name="full"))
        pair = (wired.submit(job(elastic())), wired.submit(job(elastic())))
        wired.run(2 * SECOND)
        advise(wired, *(Advice(number, 0, 4_000, 0) for number in pair))
        wired.end(blocker)
        while not guarded(wired) and (live := sorted(wired.live)):
            task, attempt = live[0]
            before = len(sized(wired))
            wired.exit(task, attempt, usage=ResourceUsage(run_time=one_thread(wired.sizes(job_of(task))[0])))
            waits = len(live) == 1 and job_of(task) == pair[0]
            wired.run(SECOND)
        if guarded(wired):
            break
    assert guarded(wired)
    if waits:
        assert all("by the rule: 1 CPU each" in told for told in sized(wired)[before:])
        assert list(wired.sizes(pair[1]).values()) == [1_000]


def test_advice_as_good_as_the_rule_is_never_put_aside() -> None:
    wired = taught()
    for _ in range(25):
        lesson(wired, 1_000)
    assert not guarded(wired)
    assert any("advised tasks cost" in reason for reason in sized(wired)[-3:])


def test_they_take_turns_and_then_the_rule_has_one_of_several() -> None:
    guard = AdviceGuard()
    assert [guard.take_turn("k") for _ in range(6)] == [True, False] * 3
    for number in range(ENDS_MIN):
        guard.on_task_ended("k", 1.0, 2.0, True, number)
        guard.on_task_ended("k", 1.0, 2.0, False, number)
    turns = [guard.take_turn("k") for _ in range(4 * RULE_EVERY)]
    assert turns.count(False) == 4
    assert guard.take_turn("other")


def judged(advice: tuple[float, float], rule: tuple[float, float], ends: int = ENDS_MIN) -> list[str]:
    """Verdicts as tasks of such costs and slowdowns end, one of each side at a time."""
    guard = AdviceGuard()
    verdicts = []
    for number in range(ends):
        verdicts.append(guard.on_task_ended("k", *rule, False, number))
        verdicts.append(guard.on_task_ended("k", *advice, True, number))
    return verdicts


def test_the_guard_waits_for_enough_and_compares_with_the_rule() -> None:
    verdicts = judged((1.5, 3.0), (1.0, 3.0))
    assert [bool(verdict) for verdict in verdicts] == [False] * (2 * ENDS_MIN - 1) + [True]
    assert "10 advised tasks cost 1.50" in verdicts[-1]
    assert "10 of the rule's 1.00 and 3.00" in verdicts[-1]
    assert not any(judged((1.5, 3.0), (1.5, 3.0), 60)), "the rule's tasks cost as much"
    assert not any(judged((1.04, 3.0), (1.0, 3.0), 60)), "within the margin"
    assert not any(judged((1.5, 2.5), (1.0, 3.0), 60)), "they end sooner: it leaves room for others"
    assert any(judged((1.5, 2.9), (1.0, 3.0), 60)), "hardly sooner"


def test_a_verdict_lasts_for_a_while_and_begins_anew() -> None:
    guard = AdviceGuard()
    for number in range(ENDS_MIN):
        guard.on_task_ended("k", 1.0, 3.0, False, number)
        verdict = guard.on_task_ended("k", 1.5, 3.0, True, number)
    assert guard.find_suspension("k", ENDS_MIN - 1 + SUSPENSION - 1) == verdict != ""
    assert guard.find_suspension("k", ENDS_MIN - 1 + SUSPENSION) == ""
    assert guard.find_suspension("other", ENDS_MIN) == ""
    for _ in range(ENDS_MIN - 1):
        assert guard.on_task_ended("k", 1.5, 3.0, True, 2 * SUSPENSION) == ""
    assert guard.on_task_ended("k", 1.5, 3.0, True, 2 * SUSPENSION)


def test_a_doubtful_difference_puts_nothing_aside() -> None:
    guard = AdviceGuard()
    for number in range(40):
        guard.on_task_ended("k", 1.0, 3.0, False, number)
        assert guard.on_task_ended("k", (0.2, 2.1)[number % 2], 3.0, True, number) == ""


def test_tallies_fade_and_kinds_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = RatioStats()
    for _ in range(5 * ENDS_KEPT):
        tally = tally.with_ratio(1.0)
    assert ENDS_KEPT // 2 <= tally.count <= ENDS_KEPT
    assert tally.mean == pytest.approx(1.0)
    assert RatioStats().with_ratio(1e9).mean == RATIO_MAX
    monkeypatch.setattr(advice_guard, "KINDS_MAX", 3)
    guard = AdviceGuard()
    for number in range(9):
        guard.on_task_ended(f"k{number}", 1.0, 1.0, True, 0)
    assert list(guard.comparisons) == ["k6", "k7", "k8"]
    guard.check()
