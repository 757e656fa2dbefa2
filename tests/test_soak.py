"""The checker of the soak: each broken promise, planted into a history that is fine, is told."""

import msgspec
import pytest
from tools.soak.__main__ import tell
from tools.soak.checker import (
    Violation,
    adopted,
    codes_unknown,
    completed_twice,
    lost_and_failed,
    second_jobs,
    story,
    violations,
)
from tools.soak.history import Answer, History, JobEnd, Life, TaskEnd, parse_lives
from tools.soak.run import Outcome


def life(task: str, attempt: int, begin: int, last: int, code: int | None = 0, node: str = "n/0") -> Life:
    return Life(task, attempt, node, 100 + attempt, begin, last, code, {"slots": 2})


def done(job: str, *tasks: TaskEnd, state: str = "succeeded") -> JobEnd:
    return JobEnd(job, state, tasks or (TaskEnd(0, "succeeded", 1, 0),))


FINE = History(
    answers=(Answer("c-1", "b1", "1-0", 5), Answer("c-1", "b1", "1-0", 6), Answer("c-2", "b2", "2-0", 7)),
    lives=(
        life("1-0.0", 1, 10, 20),
        life("2-0.0", 1, 15, 25, None, "n/1"),
        life("2-0.0", 2, 26, 30),
        life("3-0.0", 1, 12, 20),  # never acknowledged: it may run all the same
    ),
    ends={"1-0": done("1-0"), "2-0": done("2-0", TaskEnd(0, "succeeded", 2, 0))},
    counts={"c-1": 1, "c-2": 1},
    told=(("1-0", "succeeded"),),
    room={"n/0": {"slots": 4}, "n/1": {"slots": 4}},
)


def with_lives(*more: Life) -> History:
    return msgspec.structs.replace(FINE, lives=(*FINE.lives, *more))


def with_end(end: JobEnd) -> History:
    return msgspec.structs.replace(FINE, ends={**FINE.ends, end.job: end})


def with_answer(answer: Answer) -> History:
    return msgspec.structs.replace(FINE, answers=(*FINE.answers, answer))


FAILED = JobEnd("2-0", "failed", (TaskEnd(0, "failed", 2, 5),))
PLANTED = {
    "no broker knows": (with_answer(Answer("c-3", "b1", "1-9", 8)), ["lost"]),
    "a task is missing": (msgspec.structs.replace(FINE, counts={"c-1": 2}), ["lost"]),
    "a job goes on": (with_end(done("2-0", state="running")), ["not ended", "false word"]),
    "a task goes on": (with_end(done("2-0", TaskEnd(0, "running", 2))), ["not ended"]),
    "nobody cancelled": (with_end(JobEnd("2-0", "cancelled")), ["lost", "not asked for"]),
    "another id": (
        msgspec.structs.replace(
            with_answer(Answer("c-1", "b1", "1-5", 8)), ends={**FINE.ends, "1-5": done("1-5")}
        ),
        ["another id", "false word"],
    ),
    "one id for two": (with_answer(Answer("c-3", "b1", "1-0", 8)), ["one id for two"]),
    "told otherwise": (msgspec.structs.replace(FINE, told=(("1-0", "failed"),)), ["told otherwise"]),
    "run again after it was cut short": (
        msgspec.structs.replace(FINE, once=frozenset({"c-2"})),
        ["run again"],
    ),
    "run again after it had ended well": (
        msgspec.structs.replace(
            with_lives(life("1-0.0", 2, 21, 22)),
            once=frozenset({"c-1"}),
            ends={**FINE.ends, "1-0": done("1-0", TaskEnd(0, "succeeded", 2, 0))},
        ),
        ["run again"],
    ),
    "overlap": (with_lives(life("1-0.0", 2, 20, 21, node="n/1")), ["overlap"]),
    "overlap with one long before": (
        with_lives(life("1-0.0", 2, 22, 50), life("1-0.0", 3, 31, 32), life("1-0.0", 4, 40, 41, node="n/1")),
        ["overlap", "overlap"],
    ),
    "the same attempt again": (with_lives(life("1-0.0", 1, 40, 41, node="n/1")), ["begun twice"]),
    "over-committed": (with_lives(life("4-0.0", 1, 18, 19)), ["over-committed"]),
    "no such node": (with_lives(life("4-0.0", 1, 18, 19, node="m/0")), ["unknown node"]),
    "done and never said so": (with_end(done("2-0")), ["false word"]),
    "failed and said that it was well": (with_end(FAILED), ["false word"]),
    "failed and never said so": (
        with_end(JobEnd("2-0", "failed", (TaskEnd(0, "failed", 1, None),))),
        ["false word"],
    ),
    "failed with another code": (
        msgspec.structs.replace(with_end(FAILED), lives=(*FINE.lives[:2], life("2-0.0", 2, 26, 30, 6))),
        ["false word"],
    ),
}


def test_a_history_without_fault_is_believed() -> None:
    assert violations(FINE) == []
    assert completed_twice(FINE.lives) == 0
    assert second_jobs(FINE) == 0


@pytest.mark.parametrize(("history", "kinds"), PLANTED.values(), ids=PLANTED)
def test_each_broken_promise_is_told(history: History, kinds: list[str]) -> None:
    assert [one.kind for one in violations(history)] == kinds


def test_a_failed_task_that_said_so_is_believed() -> None:
    lives = (*FINE.lives[:2], life("2-0.0", 2, 26, 30, 5))
    assert violations(msgspec.structs.replace(with_end(FAILED), lives=lives)) == []


def test_a_failed_task_of_an_adopted_job_is_believed_without_its_code() -> None:
    lives = (*FINE.lives[:2], life("2-0.0", 2, 26, 30, 5))
    end = JobEnd("2-0", "failed", (TaskEnd(0, "failed", 2, None),), "b3")
    history = msgspec.structs.replace(with_end(end), lives=lives)
    assert violations(history) == []
    assert codes_unknown(history) == ["2-0.0 by b3"]
    assert (adopted(FINE), adopted(history)) == (0, 1)


@pytest.mark.parametrize("code", [None, 0, -9])
def test_what_must_not_run_twice_may_fail_by_a_loss_and_be_retried_after_a_failure(code: int | None) -> None:
    lost = JobEnd("1-0", "failed", (TaskEnd(0, "failed", 2, code, "lost"),))
    lives = (life("1-0.0", 1, 5, 8, 3), *FINE.lives[1:], life("1-0.0", 2, 10, 20, None))
    history = msgspec.structs.replace(
        FINE, once=frozenset({"c-1"}), lives=lives, ends={**FINE.ends, "1-0": lost}, told=()
    )
    assert violations(history) == []
    assert lost_and_failed(history) == 1
    assert codes_unknown(history) == []


def test_a_cancelled_job_that_somebody_cancelled_is_believed() -> None:
    end = JobEnd("2-0", "cancelled", (TaskEnd(0, "cancelled", 2),))
    assert violations(msgspec.structs.replace(with_end(end), cancelled=frozenset(["2-0"]))) == []


def test_a_second_job_at_another_broker_is_counted_and_no_fault() -> None:
    history = with_answer(Answer("c-1", "b2", "2-0", 8))
    assert second_jobs(history) == 1
    assert "another id" not in [one.kind for one in violations(history)]


def test_ends_one_after_the_other_are_counted() -> None:
    assert completed_twice((*FINE.lives, life("1-0.0", 2, 21, 22))) == 1


def test_the_story_has_all_in_order() -> None:
    (broken,) = violations(with_lives(life("1-0.0", 2, 20, 21, node="n/1")))
    assert isinstance(broken, Violation)
    told = story(with_lives(life("1-0.0", 2, 20, 21, node="n/1")), broken.subject)
    assert [line.split(" ", 1)[1].split(" (")[0] for line in told[:4]] == [
        "b1 takes c-1 as 1-0",
        "b1 takes c-1 as 1-0",
        "1-0.0 attempt 1 on n/0",
        "1-0.0 attempt 1 on n/0",
    ]
    assert told[-1].startswith("at the end: ")


def test_a_long_story_is_told_around_its_moment() -> None:
    crowd = [life(f"9-0.{index}", 1, 10**9 * index, 10**9 * index + 5) for index in range(100, 400)]
    both = [life(f"8-0.{index}", 1, 200 * 10**9 + 1, 200 * 10**9 + 4) for index in range(2)]
    history = with_lives(*crowd, *both)
    (broken,) = violations(history)
    told = tell(Outcome(history, [broken], [(199 * 10**9, "kill: b1"), (5, "kill: b2")], {"seed": 4}))
    assert "8-0.1 attempt 1" in told
    assert "199.000 fault kill: b1" in told
    assert "9-0.399" not in told
    assert "kill: b2" not in told
    assert told.endswith("1 promises broken; the same choices again: --seed 4")


def test_lives_are_read_from_the_log() -> None:
    lines = [
        "1-0.0 1 n/0 7 500 2 1000 begin 0\n",
        "1-0.0 2 n/1 8 500 2 3000 begin 0\n",
        "1-0.0 1 n/0 7 500 2 2000 alive 0\n",
        "1-0.0 2 n/1 8 500 2 4000 end 5\n",
    ]
    first, second = parse_lives(lines)
    assert (first.begin, first.last, first.code, first.pid) == (1_000, 2_000, None, 7)
    assert (second.node, second.code, second.asks) == ("n/1", 5, {"cpu": 500, "slots": 2})
