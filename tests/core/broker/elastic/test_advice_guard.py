"""Guard over advice: advised tasks are compared with those of the rule, and bad advice is put aside."""

import pytest

from hanse.core.broker.elastic import advice_guard
from hanse.core.broker.elastic.advice_guard import (
    ENDS_KEPT,
    ENDS_MIN,
    RATIO_MAX,
    RULE_EVERY,
    SUSPENSION,
    AdviceGuard,
    RatioStats,
)
from hanse.model.advice import Advice
from hanse.model.ids import SECOND, job_of, task_id
from hanse.model.messages import ResourceUsage
from tests.core.broker.elastic.test_advice_client import advise, elastic, guarded, sized
from tests.core.wired import Wired, job, node, tasks


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
