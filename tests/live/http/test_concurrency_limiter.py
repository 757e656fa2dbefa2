"""Taking turns: a few at a time, in order, and nobody who gave up keeps others waiting."""

import asyncio

import pytest

from hanse.live.http import concurrency_limiter
from hanse.live.http.concurrency_limiter import CONCURRENT_MAX, ConcurrencyLimiter, Key, QueueTimeoutError

SECONDS_MAX = 60.0
"""Reached only by a failure."""
ANN: Key = ("ann", False)
EVE: Key = ("eve", False)


def test_only_a_few_work_and_the_others_follow_in_order() -> None:
    async def play() -> None:
        turns = ConcurrencyLimiter()
        begun: list[int] = []
        working = most = 0

        async def work(number: int) -> None:
            nonlocal working, most
            async with turns.slot(EVE):
                begun.append(number)
                working += 1
                most = max(most, working)
                await asyncio.sleep(0)
                working -= 1

        await asyncio.gather(*(work(number) for number in range(50)))
        assert begun == list(range(50))
        assert most == CONCURRENT_MAX[False]
        assert len(turns) == 0

    asyncio.run(play())


def test_a_long_line_of_one_does_not_keep_another_waiting() -> None:
    async def play() -> None:
        turns = ConcurrencyLimiter()
        end = asyncio.Event()

        async def slow() -> None:
            async with turns.slot(EVE):
                await end.wait()

        crowd = [asyncio.create_task(slow()) for _ in range(100)]
        await asyncio.sleep(0)
        served: list[Key] = []
        for key in (ANN, ("eve", True)):
            async with asyncio.timeout(0), turns.slot(key):
                served.append(key)
        assert served == [ANN, ("eve", True)]
        end.set()
        await asyncio.gather(*crowd)
        async with asyncio.timeout(SECONDS_MAX):
            while len(turns):  # a place in line may still rest
                await asyncio.sleep(0)

    asyncio.run(play())


@pytest.mark.parametrize("gives_up", [True, False])
def test_who_gives_up_leaves_the_line_and_the_turn(gives_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        turns = ConcurrencyLimiter()
        end = asyncio.Event()

        async def slow() -> None:
            async with turns.slot(EVE):
                await end.wait()

        holders = [asyncio.create_task(slow()) for _ in range(CONCURRENT_MAX[False])]
        waiter = asyncio.create_task(slow())
        await asyncio.sleep(0)
        if gives_up:
            waiter.cancel()
        else:
            with pytest.raises(QueueTimeoutError):
                await waiter
        last = asyncio.create_task(slow())
        await asyncio.sleep(0)
        end.set()
        await asyncio.gather(*holders, return_exceptions=True)
        await asyncio.gather(waiter, last, return_exceptions=True)
        assert waiter.cancelled() or waiter.exception() is not None
        assert len(turns) == 0

    monkeypatch.setattr(concurrency_limiter, "QUEUE_SECONDS_MAX", 60.0 if gives_up else 0.01)
    asyncio.run(play())


def test_a_turn_that_comes_to_somebody_who_just_left_goes_to_the_next() -> None:
    async def play() -> None:
        turns = ConcurrencyLimiter()
        end = asyncio.Event()

        async def slow() -> None:
            async with turns.slot(EVE):
                await end.wait()

        mine = turns.slot(EVE)
        await mine.__aenter__()
        holders = [asyncio.create_task(slow()) for _ in range(CONCURRENT_MAX[False] - 1)]
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


@pytest.mark.parametrize("company", [True, False])
def test_a_line_rests_between_requests_while_somebody_else_is_there(
    company: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency_limiter, "PAUSE_SECONDS_MAX", 3_600.0)

    async def play() -> None:
        now = 1_000.0
        turns = ConcurrencyLimiter(lambda: now)
        begun: list[int] = []
        ends = [asyncio.Event() for _ in range(4)]

        async def work(number: int) -> None:
            async with turns.slot(EVE):
                begun.append(number)
                await ends[number].wait()

        if company:
            async with turns.slot(ANN):
                pass
        crowd = [asyncio.create_task(work(number)) for number in range(4)]
        await asyncio.sleep(0)
        assert begun == [0, 1]
        now += 1.0  # so long the first two take
        ends[0].set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert begun == ([0, 1] if company else [0, 1, 2])
        now += concurrency_limiter.CONTENTION_SECONDS  # the other one has gone
        ends[1].set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert begun == ([0, 1, 2] if company else [0, 1, 2, 3])
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)

    asyncio.run(play())


def test_who_waits_for_nobody_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request after another, while others ask too: none of them waits, however long each takes."""
    monkeypatch.setattr(concurrency_limiter, "PAUSE_SECONDS_MAX", 3_600.0)

    async def play() -> None:
        now = 1_000.0
        turns = ConcurrencyLimiter(lambda: now)
        company: list[bool] = []
        for _ in range(20):
            for key in (ANN, EVE):
                async with asyncio.timeout(0), turns.slot(key):
                    now += concurrency_limiter.CONTENTION_SECONDS / 4
                    company.append(turns._is_contended(key[0]))
        assert all(company[1:])
        assert len(turns) == 0

    asyncio.run(play())
