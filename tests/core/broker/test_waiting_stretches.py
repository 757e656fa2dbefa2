"""Stretches of waiting tasks: all of them are found, in order, however far apart they are."""

from hypothesis import example, given
from hypothesis import strategies as st

from hanse.core.broker.job_table import BLOCKED, RUNNING, WAITING
from hanse.core.broker.sliced_jobs import SCAN_TASKS, find_stretches


def states_of(tasks: int, waiting: list[int]) -> bytearray:
    """Running tasks, but for some that wait."""
    states = bytearray([RUNNING]) * tasks
    for index in waiting:
        states[index % tasks] = (WAITING, BLOCKED)[index % 2]
    return states


def indices_of(stretches: list[tuple[int, int]]) -> list[int]:
    return [index for start, count in stretches for index in range(start, start + count)]


@given(st.integers(1, 4 * SCAN_TASKS), st.lists(st.integers(0, 4 * SCAN_TASKS)), st.integers(1, 50))
@example(20_000, [3, 12_000], 50)
def test_the_first_waiting_tasks_are_found_wherever_they_are(
    tasks: int, waiting: list[int], most: int
) -> None:
    states = states_of(tasks, waiting)
    expected = [index for index, state in enumerate(states) if state in (WAITING, BLOCKED)][:most]
    assert indices_of(find_stretches(states, most)) == expected


def test_a_whole_job_that_waits_is_one_search() -> None:
    states = bytearray([BLOCKED]) * (2 * SCAN_TASKS + 5)
    assert indices_of(find_stretches(states, len(states))) == list(range(len(states)))


@given(st.integers(0, 3 * SCAN_TASKS), st.integers(0, 3 * SCAN_TASKS))
def test_a_search_stays_within_its_bounds(first: int, stop: int) -> None:
    states = bytearray([WAITING]) * (3 * SCAN_TASKS)
    assert indices_of(find_stretches(states, len(states), first, stop)) == list(range(first, stop))
