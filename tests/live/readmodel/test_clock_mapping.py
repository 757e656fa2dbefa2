"""From machine time to the time of day."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hanse.live.readmodel.clock_mapping import SPAN_MAX, SPANS_MAX, Times
from hanse.model.ids import SECOND

DAY = 86_400 * SECOND
NOON = 1_700_000_000 * SECOND


def test_nothing_is_known_before_the_time_is_told() -> None:
    times = Times()
    times.moment(5)
    assert times.wall().of(5) is None
    assert times.wall().of(None) is None


def test_a_moment_is_as_far_from_the_told_one_by_the_calendar_as_by_the_machine() -> None:
    times = Times()
    times.moment(10 * SECOND)
    first = times.moment(12 * SECOND)
    times.told(NOON)
    assert times.wall().of(first) == NOON
    assert times.wall().of(first - 2 * SECOND) == NOON - 2 * SECOND


def test_a_batch_that_was_late_does_not_move_the_clock() -> None:
    times = Times()
    times.moment(0)
    times.told(NOON)
    late = times.moment(SECOND)
    times.told(NOON + 60 * SECOND)
    assert times.wall().of(late) == NOON + SECOND


def test_old_events_get_their_old_times_when_a_rebuilt_file_has_caught_up() -> None:
    times = Times()
    old = times.moment(0)
    times.told(NOON + 9 * DAY)  # nine days later the journal is read again
    times.begin()
    times.moment(9 * DAY)
    times.told(NOON + 9 * DAY)
    assert times.wall().of(old) == NOON


def test_a_clock_that_drifts_is_followed_span_by_span() -> None:
    times = Times()
    first = times.moment(0)
    times.told(NOON)
    later = times.moment(SPAN_MAX)
    times.told(NOON + SPAN_MAX + 7 * SECOND)
    assert times.wall().of(first) == NOON
    assert times.wall().of(later) == NOON + SPAN_MAX + 7 * SECOND


def test_a_clock_that_began_anew_does_not_turn_the_order_round() -> None:
    times = Times()
    before = times.moment(100 * SECOND)
    times.told(NOON)
    after = times.moment(3 * SECOND)
    times.begin()
    last = times.moment(5 * SECOND)
    times.told(NOON + 60 * SECOND)
    wall = times.wall()
    assert before <= after < last
    assert wall.of(last) == NOON + 60 * SECOND
    assert wall.of(before) == NOON


def test_spans_are_bounded() -> None:
    times = Times()
    for number in range(SPANS_MAX + 10):
        times.moment(number * SPAN_MAX)
        times.told(NOON + number * SPAN_MAX)
    assert len(times.since) == len(times.offsets) == SPANS_MAX
    assert times.wall().of(0) == NOON


@given(
    st.lists(
        st.tuples(st.integers(0, 3 * SPAN_MAX), st.integers(0, DAY), st.booleans()), min_size=1, max_size=40
    )
)
def test_on_a_true_clock_no_time_is_early_and_the_last_on_time_batch_sets_all_right(
    batches: list[tuple[int, int, bool]],
) -> None:
    times = Times()
    now = 0
    for gap, late, restart in batches:
        now += gap
        times.moment(now)
        if restart:
            times.begin()
        times.told(NOON + now + late)
        shown = times.wall().of(now)
        assert shown is not None
        assert NOON + now <= shown <= NOON + now + late
    times.told(NOON + now)
    wall = msgspec.msgpack.decode(msgspec.msgpack.encode(times), type=Times).wall()
    moment = 0
    for gap, _, _ in batches:
        moment += gap
        assert wall.of(moment) == NOON + moment
