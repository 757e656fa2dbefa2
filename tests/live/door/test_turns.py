"""Taking turns: a few at a time, in order, and nobody who gave up keeps others waiting."""

import asyncio

import pytest

from hanse.live.door import turns as turns_module
from hanse.live.door.turns import AT_ONCE, Key, LateError, Turns

ANN: Key = ("ann", False)
EVE: Key = ("eve", False)


def test_only_a_few_work_and_the_others_follow_in_order() -> None:
    async def play() -> None:
        turns = Turns()
        begun: list[int] = []
        working = most = 0

        async def work(number: int) -> None:
            nonlocal working, most
            async with turns.turn(EVE):
                begun.append(number)
                working += 1
                most = max(most, working)
                await asyncio.sleep(0)
                working -= 1

        await asyncio.gather(*(work(number) for number in range(50)))
        assert begun == list(range(50))
        assert most == AT_ONCE[False]
        assert len(turns) == 0

    asyncio.run(play())


def test_a_long_line_of_one_does_not_keep_another_waiting() -> None:
    async def play() -> None:
        turns = Turns()
        end = asyncio.Event()

        async def slow() -> None:
            async with turns.turn(EVE):
                await end.wait()

        crowd = [asyncio.create_task(slow()) for _ in range(100)]
        await asyncio.sleep(0)
        for key in (ANN, ("eve", True)):
            async with asyncio.timeout(0), turns.turn(key):
                pass
        end.set()
        await asyncio.gather(*crowd)
        assert len(turns) == 0

    asyncio.run(play())


@pytest.mark.parametrize("gives_up", [True, False])
def test_who_gives_up_leaves_the_line_and_the_turn(gives_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        turns = Turns()
        end = asyncio.Event()

        async def slow() -> None:
            async with turns.turn(EVE):
                await end.wait()

        holders = [asyncio.create_task(slow()) for _ in range(AT_ONCE[False])]
        waiter = asyncio.create_task(slow())
        await asyncio.sleep(0)
        if gives_up:
            waiter.cancel()
        else:
            with pytest.raises(LateError):
                await waiter
        last = asyncio.create_task(slow())
        await asyncio.sleep(0)
        end.set()
        await asyncio.gather(*holders, return_exceptions=True)
        await asyncio.gather(waiter, last, return_exceptions=True)
        assert waiter.cancelled() or waiter.exception() is not None
        assert len(turns) == 0

    monkeypatch.setattr(turns_module, "LINE_SECONDS_MAX", 60.0 if gives_up else 0.01)
    asyncio.run(play())


def test_a_turn_that_comes_to_somebody_who_just_left_goes_to_the_next() -> None:
    async def play() -> None:
        turns = Turns()
        end = asyncio.Event()

        async def slow() -> None:
            async with turns.turn(EVE):
                await end.wait()

        mine = turns.turn(EVE)
        await mine.__aenter__()
        holders = [asyncio.create_task(slow()) for _ in range(AT_ONCE[False] - 1)]
        late = asyncio.create_task(slow())
        next_one = asyncio.create_task(slow())
        await asyncio.sleep(0)
        await mine.__aexit__(None, None, None)
        late.cancel()  # it has been given the turn, and has not noticed yet
        await asyncio.sleep(0)
        end.set()
        async with asyncio.timeout(60):
            await asyncio.gather(next_one, *holders)
        assert late.cancelled()
        assert len(turns) == 0

    asyncio.run(play())
