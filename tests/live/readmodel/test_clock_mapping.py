"""From machine time to the time of day."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hanse.live.readmodel.clock_mapping import SPAN_MAX, SPANS_MAX, ClockMapping
from hanse.model.ids import SECOND

DAY = 86_400 * SECOND
NOON = 1_700_000_000 * SECOND


def test_nothing_is_known_before_the_time_is_told() -> None:
    times = ClockMapping()
    times.to_moment(5)
    assert times.wall_clock().time_of(5) is None
    assert times.wall_clock().time_of(None) is None


def test_a_moment_is_as_far_from_the_told_one_by_the_calendar_as_by_the_machine() -> None:
    times = ClockMapping()
    times.to_moment(10 * SECOND)
    first = times.to_moment(12 * SECOND)
    times.observe_wall_time(NOON)
    assert times.wall_clock().time_of(first) == NOON
    assert times.wall_clock().time_of(first - 2 * SECOND) == NOON - 2 * SECOND


def test_a_batch_that_was_late_does_not_move_the_clock() -> None:
    times = ClockMapping()
    times.to_moment(0)
    times.observe_wall_time(NOON)
    late = times.to_moment(SECOND)
    times.observe_wall_time(NOON + 60 * SECOND)
    assert times.wall_clock().time_of(late) == NOON + SECOND


def test_old_events_get_their_old_times_when_a_rebuilt_file_has_caught_up() -> None:
    times = ClockMapping()
    old = times.to_moment(0)
    times.observe_wall_time(NOON + 9 * DAY)  # nine days later the journal is read again
    times.on_process_start()
    times.to_moment(9 * DAY)
    times.observe_wall_time(NOON + 9 * DAY)
    assert times.wall_clock().time_of(old) == NOON


def test_a_clock_that_drifts_is_followed_span_by_span() -> None:
    times = ClockMapping()
    first = times.to_moment(0)
    times.observe_wall_time(NOON)
    later = times.to_moment(SPAN_MAX)
    times.observe_wall_time(NOON + SPAN_MAX + 7 * SECOND)
    assert times.wall_clock().time_of(first) == NOON
    assert times.wall_clock().time_of(later) == NOON + SPAN_MAX + 7 * SECOND


def test_a_clock_that_began_anew_does_not_turn_the_order_round() -> None:
    times = ClockMapping()
    before = times.to_moment(100 * SECOND)
    times.observe_wall_time(NOON)
    after = times.to_moment(3 * SECOND)
    times.on_process_start()
    last = times.to_moment(5 * SECOND)
    times.observe_wall_time(NOON + 60 * SECOND)
    wall = times.wall_clock()
    assert before <= after < last
    assert wall.time_of(last) == NOON + 60 * SECOND
    assert wall.time_of(before) == NOON


def test_spans_are_bounded() -> None:
    times = ClockMapping()
    for number in range(SPANS_MAX + 10):
        times.to_moment(number * SPAN_MAX)
        times.observe_wall_time(NOON + number * SPAN_MAX)
    assert len(times.since) == len(times.offsets) == SPANS_MAX
    assert times.wall_clock().time_of(0) == NOON


@given(
    st.lists(
        st.tuples(st.integers(0, 3 * SPAN_MAX), st.integers(0, DAY), st.booleans()), min_size=1, max_size=40
    )
)
def test_on_a_true_clock_no_time_is_early_and_the_last_on_time_batch_sets_all_right(
    batches: list[tuple[int, int, bool]],
) -> None:
    times = ClockMapping()
    now = 0
    for gap, late, restart in batches:
        now += gap
        times.to_moment(now)
        if restart:
            times.on_process_start()
        times.observe_wall_time(NOON + now + late)
        shown = times.wall_clock().time_of(now)
        assert shown is not None
        assert NOON + now <= shown <= NOON + now + late
    times.observe_wall_time(NOON + now)
    wall = msgspec.msgpack.decode(msgspec.msgpack.encode(times), type=ClockMapping).wall_clock()
    moment = 0
    for gap, _, _ in batches:
        moment += gap
        assert wall.time_of(moment) == NOON + moment
