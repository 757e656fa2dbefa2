"""The lag of a member's loop: the longest is kept, long ones are counted, a busy loop is looked at often."""

import asyncio

from hanse.live.telemetry.loop_lag import LOOK_BUSY_SECONDS, LOOK_SECONDS, LoopLag


def test_the_longest_lag_is_kept_and_long_ones_are_counted() -> None:
    async def noted() -> LoopLag:
        lag = LoopLag(asyncio.get_running_loop())
        lag.close()
        assert lag.note(0.001) == LOOK_SECONDS
        assert lag.note(0.080) == LOOK_BUSY_SECONDS
        assert lag.note(0.060) == LOOK_BUSY_SECONDS
        assert lag.note(0.010) == LOOK_BUSY_SECONDS
        return lag

    lag = asyncio.run(noted())
    assert lag.longest == 0.080
    assert lag.long == 2


def test_it_looks_by_itself_until_it_is_closed() -> None:
    async def looked() -> None:
        lag = LoopLag(asyncio.get_running_loop())
        lag.longest = -1.0
        while lag.longest < 0:
            await asyncio.sleep(LOOK_BUSY_SECONDS)
        lag.close()

    asyncio.run(asyncio.wait_for(looked(), 60))
