"""The lag of a member's loop: the longest is kept, long ones are counted, an idle loop is seldom checked."""

import asyncio
import time

from hanse.live.telemetry.loop_lag import (
    CHECK_BUSY_SECONDS,
    CHECK_SECONDS,
    IDLE_SHARE,
    LOOK_IDLE_SECONDS,
    LoopLag,
)


def test_the_longest_lag_is_kept_and_long_ones_are_counted() -> None:
    async def noted() -> LoopLag:
        lag = LoopLag(asyncio.get_running_loop())
        lag.close()
        assert lag.record(0.001, 0.5) == CHECK_SECONDS
        assert lag.record(0.080, 0.5) == CHECK_BUSY_SECONDS
        assert lag.record(0.060, 0.5) == CHECK_BUSY_SECONDS
        assert lag.record(0.020, 0.5) == CHECK_BUSY_SECONDS
        return lag

    lag = asyncio.run(noted())
    assert lag.longest == 0.080
    assert lag.long_lags == 2


def test_an_idle_member_is_seldom_looked_at_and_its_lags_count_all_the_same() -> None:
    async def noted() -> LoopLag:
        lag = LoopLag(asyncio.get_running_loop())
        lag.close()
        assert lag.record(0.0, 0.0) == LOOK_IDLE_SECONDS
        assert lag.record(0.070, IDLE_SHARE / 2) == LOOK_IDLE_SECONDS
        assert lag.record(0.0, IDLE_SHARE) == CHECK_SECONDS
        return lag

    lag = asyncio.run(noted())
    assert (lag.longest, lag.long_lags) == (0.070, 1)


def test_a_loop_that_is_kept_is_seen_by_the_timer() -> None:
    async def looked() -> LoopLag:
        lag = LoopLag(asyncio.get_running_loop())
        kept_until = time.monotonic() + 2 * LOOK_IDLE_SECONDS
        while time.monotonic() < kept_until:
            pass
        while not lag.long_lags:
            await asyncio.sleep(CHECK_BUSY_SECONDS)
        lag.close()
        return lag

    lag = asyncio.run(asyncio.wait_for(looked(), 60))
    assert lag.longest > LOOK_IDLE_SECONDS / 2
