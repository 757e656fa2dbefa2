"""Ids: nothing is lost between number and text, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.model.ids import (
    BROKER_NUMBER_MAX,
    SERIAL_BITS,
    TASKS_PER_JOB_MAX,
    broker_number,
    index_of,
    job_id,
    job_of,
    job_text,
    parse_job,
    parse_task,
    task_id,
    task_text,
)

numbers = st.integers(1, BROKER_NUMBER_MAX)
serials = st.integers(0, (1 << SERIAL_BITS) - 1)
indices = st.integers(0, TASKS_PER_JOB_MAX - 1)


@given(numbers, serials, indices)
def test_round_trips(number: int, serial: int, index: int) -> None:
    job = job_id(number, serial)
    task = task_id(job, index)
    assert broker_number(job) == number
    assert job_of(task) == job
    assert index_of(task) == index
    assert parse_job(job_text(job)) == job
    assert parse_task(task_text(task)) == task
    assert 0 < task < 1 << 63


@given(st.tuples(numbers, serials, indices), st.tuples(numbers, serials, indices))
def test_ids_sort_like_their_parts_and_so_never_clash(
    left: tuple[int, int, int], right: tuple[int, int, int]
) -> None:
    one, other = (task_id(job_id(number, serial), index) for number, serial, index in (left, right))
    assert (one < other) == (left < right)
    assert (one == other) == (left == right)


@pytest.mark.parametrize(
    "garbage",
    [
        *(
            "",
            "-",
            "1",
            "1-",
            "-1",
            "1--1",
            "a-1",
            "1-a",
            " 1-1",
            "1-1 ",
            "+1-1",
            "1-1\n",
            "01-1",
            "1-01",
            "1_0-1",
        ),
        *("0-1", "1024-1", "1-4294967296", "1-1.0", "²-1", "١-1", "1-" + "9" * 10_000, "9" * 10_000 + "-1"),
    ],
)
def test_garbage_is_no_job(garbage: str) -> None:
    assert parse_job(garbage) is None


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        ".",
        "1-1",
        "1-1.",
        "1-1.x",
        "1-1.00",
        "1-1.-1",
        "1-1.1048576",
        "1.1-1",
        "1-1." + "0" * 9_999,
        "0-1.1",
    ],
)
def test_garbage_is_no_task(garbage: str) -> None:
    assert parse_task(garbage) is None


@given(st.text(alphabet="0123456789-. x", max_size=20) | st.text(max_size=20))
def test_what_parses_prints_the_same(written: str) -> None:
    job, task = parse_job(written), parse_task(written)
    assert job is None or job_text(job) == written
    assert task is None or task_text(task) == written
