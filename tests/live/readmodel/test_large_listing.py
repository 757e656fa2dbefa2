"""Whoever asks about a job gets a page from the file: as much work for a million tasks as for some, and none
of it on the loop's thread."""

import asyncio
import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hanse.live.readmodel.feeder import ReadModelFeeder
from hanse.live.readmodel.read_model import ReadModel
from hanse.model.ids import JobId
from hanse.model.job import TaskGroup
from tests.live.readmodel.histories import EPOCH
from tests.live.readmodel.test_read_model import Script

SMALL, LARGE = 10_000, 160_000
CLAIMED = 40
PAGE = 100
QUESTIONS: dict[str, Callable[[ReadModel, JobId, int], object]] = {
    "job": lambda reads, job, _: reads.job(job),
    "tasks": lambda reads, job, _: reads.tasks(job, limit=PAGE),
    "tasks behind the middle": lambda reads, job, count: reads.tasks(job, limit=PAGE, after=count // 2),
    "tasks that run": lambda reads, job, _: reads.tasks(job, limit=PAGE, state="running"),
    "tasks that wait": lambda reads, job, _: reads.tasks(job, limit=PAGE, state="queued"),
    "why": lambda reads, job, _: reads.task_summary(job),
    "decisions": lambda reads, job, _: reads.decisions(job),
    "jobs": lambda reads, _, __: reads.jobs(),
}


def filled(path: Path, count: int) -> tuple[ReadModel, JobId]:
    """A read model with a job of so many tasks, some of which are claimed."""
    script = Script()
    number = script.submit(1, groups=(TaskGroup(count=count),))
    script.claim(number, *range(CLAIMED))
    reads = ReadModel(path, "b1")
    reads.apply(script.steps, EPOCH)
    return reads, number


def lines_of(question: Callable[[], object]) -> int:
    """How many lines of Python an answer takes, without those that clear up behind other tests."""
    lines, before = 0, sys.gettrace()

    def trace(_: FrameType, what: str, __: Any) -> Any:
        nonlocal lines
        lines += what == "line"
        return trace

    gc.collect()
    gc.disable()
    sys.settrace(trace)
    try:
        question()
    finally:
        sys.settrace(before)
        gc.enable()
    return lines


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_takes_as_much_work_for_a_large_job(tmp_path: Path, name: str) -> None:
    taken = []
    for count in (SMALL, LARGE):
        reads, number = filled(tmp_path / f"{count}.sqlite", count)
        ask = QUESTIONS[name]
        ask(reads, number, count)  # opens the file
        taken.append(lines_of(lambda: ask(reads, number, count)))  # noqa: B023  called at once
        reads.close()
    assert taken[0] == taken[1] > 0


def test_answers_are_looked_for_away_from_the_loop(tmp_path: Path) -> None:
    async def story() -> None:
        reads, number = filled(tmp_path / "reads.sqlite", SMALL)
        feed = ReadModelFeeder(reads, lambda error: pytest.fail(str(error)))
        names: list[str] = []

        def asked() -> None:
            names.append(threading.current_thread().name)
            for ask in QUESTIONS.values():
                ask(reads, number, SMALL)

        await feed.query(asked)
        assert names[0].startswith("questions")
        feed.close()

    asyncio.run(story())
