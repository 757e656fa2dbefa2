"""Names of jobs, which say whose tasks they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hanse.live.backends.slurm.job_names import (
    TASKS_CHARACTERS_MAX,
    AttemptId,
    format_tasks,
    parse_tasks,
    split_tasks,
)
from hanse.model.ids import TaskId

keys = st.lists(
    st.tuples(
        st.builds(
            lambda job, index: TaskId((1 << 52) | job << 20 | index), st.integers(0, 3), st.integers(0, 40)
        ),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=60,
)


@given(keys)
def test_tasks_are_read_as_they_were_written(some: list[AttemptId]) -> None:
    assert parse_tasks(format_tasks(some)) == tuple(some)


@given(keys, st.integers(1, 50))
def test_tasks_are_cut_into_short_names_in_their_order(some: list[AttemptId], most: int) -> None:
    cut = split_tasks(some, most)
    assert [key for part in cut for key in part] == some
    assert all(1 <= len(part) <= most for part in cut)
    assert all(len(part) == 1 or len(format_tasks(part)) <= TASKS_CHARACTERS_MAX for part in cut)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1-7.0",
        "1-7.0#",
        "1-7.0#x",
        "1-7.5..3#1",
        "1-7.0..#1",
        "1-7.0#1+",
        "1-7.0..99999999#1",
        "1-7#1",
    ],
)
def test_other_names_are_nobodys_tasks(text: str) -> None:
    assert parse_tasks(text) is None


def test_an_array_takes_one_name() -> None:
    some = [(TaskId(1 << 52 | index), 1) for index in range(200)]
    assert format_tasks(some) == "1-0.0..199#1"
    assert split_tasks(some, 200) == [some]
