"""Calls and jobs of Python programs in a league of real daemons, with real workers."""

import asyncio
import concurrent.futures
import operator
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hanse
from tests.live import sdk_calls
from tests.live.harness import LiveLeague
from tests.live.sdk_league import sdk_league

SECONDS_MAX = 60.0
"""A result that has not come by then will not come."""


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLeague]:
    with sdk_league() as league:
        yield league


@pytest.fixture(scope="module")
def pool(live: LiveLeague) -> Iterator[hanse.Executor]:
    with hanse.Executor(max_workers=2, name="shared") as executor:
        assert executor.wait_for_workers(2, SECONDS_MAX)
        yield executor


# --- a real executor ---------------------------------------------------------------------------------------


def test_functions_by_name_by_value_and_methods_are_called(pool: hanse.Executor) -> None:
    shift = 5
    assert pool.submit(operator.add, 1, 2).result(SECONDS_MAX) == 3
    assert pool.submit(lambda x: x + shift, 1).result(SECONDS_MAX) == 6
    assert pool.submit(sdk_calls.keyword, 1, b=2).result(SECONDS_MAX) == {"a": 1, "b": 2}
    assert pool.submit("a-b".replace, "-", "+").result(SECONDS_MAX) == "a+b"
    assert pool.submit(dict, a=1).result(SECONDS_MAX) == {"a": 1}


def test_calls_run_elsewhere_and_say_where(pool: hanse.Executor, live: LiveLeague) -> None:
    future = pool.submit(os.getpid)
    assert future.result(SECONDS_MAX) != os.getpid()
    assert future.cluster in ("north", "south")
    assert future.worker in pool.tasks
    job, _, index = future.worker.partition(".")
    row = live.broker().ask("GET", f"/v1/jobs/{job}")["row"]
    assert row["name"] == "shared"
    assert int(index) < row["total"]


def test_as_completed_wait_and_map_work(pool: hanse.Executor) -> None:
    futures = [pool.submit(operator.mul, n, n) for n in range(100)]
    done = {future.result() for future in concurrent.futures.as_completed(futures, SECONDS_MAX)}
    assert done == {n * n for n in range(100)}
    states = concurrent.futures.wait(futures, SECONDS_MAX)
    assert len(states.done) == 100
    assert list(pool.map(operator.add, range(50), range(50))) == [2 * n for n in range(50)]
    assert list(pool.map(abs, range(-1_000, 0), chunksize=64)) == list(range(1_000, 0, -1))
    assert list(pool.map(lambda n: n + 1, range(300))) == list(range(1, 301))


def test_asyncio_waits_for_calls(pool: hanse.Executor) -> None:
    async def both() -> list[int]:
        futures = [asyncio.wrap_future(pool.submit(abs, -n)) for n in (1, 2)]
        return await asyncio.wait_for(asyncio.gather(*futures), SECONDS_MAX)

    assert asyncio.run(both()) == [1, 2]


def test_an_exception_comes_back_with_the_traceback_of_the_hand(pool: hanse.Executor) -> None:
    future = pool.submit(sdk_calls.fails, "told")
    with pytest.raises(ValueError, match="told") as caught:
        future.result(SECONDS_MAX)
    assert isinstance(caught.value.__cause__, hanse.RemoteTracebackError)
    assert "in fails" in str(caught.value.__cause__)
    assert "hanse/sdk/workers" not in str(caught.value.__cause__)


def test_what_cannot_be_pickled_is_told(pool: hanse.Executor) -> None:
    for function, args in ((sdk_calls.gives_a_lock, ()), (abs, (threading.Lock(),))):
        with pytest.raises(hanse.SerializationError, match="cannot be pickled"):
            pool.submit(function, *args).result(SECONDS_MAX)
    with pytest.raises(hanse.SdkError, match="OddError: odd"):
        pool.submit(sdk_calls.raises_odd).result(SECONDS_MAX)


@pytest.mark.parametrize("chunksize", [0, 1, 2])
def test_map_fails_where_what_cannot_be_pickled_is_taken(pool: hanse.Executor, chunksize: int) -> None:
    """As ``concurrent.futures.ProcessPoolExecutor`` does: the call fails, and not the call of ``map``."""
    rows = [-1, -2, threading.Lock(), -4]
    results = pool.map(abs, rows, chunksize=chunksize)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(hanse.SerializationError, match="the arguments cannot be pickled"):
        next(results)
    lock = threading.Lock()
    unsent = pool.map(lambda n: (n, lock), range(4), chunksize=chunksize)
    with pytest.raises(hanse.SerializationError, match="cannot be pickled"):
        next(unsent)
    assert list(pool.map(abs, range(-4, 0), chunksize=chunksize)) == [4, 3, 2, 1]


def test_exits_end_the_call_and_not_the_hand(pool: hanse.Executor) -> None:
    before = pool.tasks
    for function in (sys.exit, sdk_calls.interrupts):
        with pytest.raises(hanse.CallExitedError):
            pool.submit(function).result(SECONDS_MAX)
    assert pool.tasks == before


def test_futures_as_arguments_make_a_graph(pool: hanse.Executor) -> None:
    one = pool.submit(sdk_calls.later, 0.2, 1)
    two = pool.submit(operator.add, one, 1)
    three = pool.submit(sum, [one, two, 10])
    four = pool.submit(sdk_calls.keyword, {"x": three}, b=(two,))
    assert four.result(SECONDS_MAX) == {"a": {"x": 13}, "b": (2,)}


def test_a_failed_argument_fails_the_call(pool: hanse.Executor) -> None:
    bad = pool.submit(sdk_calls.fails, "first")
    after = pool.submit(abs, bad)
    with pytest.raises(hanse.DependencyFailedError) as caught:
        pool.submit(abs, after).result(SECONDS_MAX)
    assert isinstance(after.exception(SECONDS_MAX), hanse.DependencyFailedError)
    assert isinstance(caught.value.__cause__, hanse.DependencyFailedError)


def test_large_values_travel_by_file_and_over_the_channel(live: LiveLeague) -> None:
    data = np.arange(1_000_000, dtype=np.int64)
    for spool in (None, ""):
        with hanse.Executor(max_workers=1, spool=spool) as executor:
            back = executor.submit(sdk_calls.doubled, data).result(SECONDS_MAX)
            assert np.array_equal(back, 2 * data)
            back[0] = 7  # a result is the caller's own
            text = executor.submit(sdk_calls.repeated, b"x" * 700_000, 3).result(SECONDS_MAX)
            assert text == b"x" * 2_100_000


def test_large_results_pass_from_hand_to_hand_without_coming_here(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=2) as executor:
        first = executor.submit(sdk_calls.slow_block, 2_000_000)
        second = executor.submit(sdk_calls.size_and_sum, first)
        assert second.result(SECONDS_MAX) == (2_000_000, 2_000_000)
        assert first._stored_result() is not None
        spool = executor._store
        assert spool is not None
        assert (
            len(list(Path(spool.directory).iterdir())) == 2
        )  # the token, and the block that is kept for its future
        assert first.result(SECONDS_MAX) == b"\1" * 2_000_000
        assert first._stored_result() is None
        assert len(list(Path(spool.directory).iterdir())) == 1
    assert not Path(spool.directory).exists()


# --- cancelling, explaining ---------------------------------------------------------------------------------


def test_results_in_files_outlive_their_executor(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=2) as executor:
        first = executor.submit(sdk_calls.slow_block, 400_000)
        second = executor.submit(len, first)
    assert second.result(SECONDS_MAX) == 400_000
    assert first.result(SECONDS_MAX) == b"\1" * 400_000


def test_a_bug_in_the_executor_leaves_nobody_waiting(
    live: LiveLeague, capsys: pytest.CaptureFixture[str]
) -> None:
    executor = hanse.Executor(max_workers=1)
    with sdk_calls.Gate() as gate:
        futures = [executor.submit(gate.wait), executor.submit(abs, 1)]
        gate.entered(SECONDS_MAX)
        executor._dispatcher.post(lambda: operator.truediv(1, 0))
        for future in futures:
            with pytest.raises(hanse.SdkError, match="bug in the executor"):
                future.result(SECONDS_MAX)
        with pytest.raises(hanse.SdkError, match="bug in the executor"):
            executor.submit(abs, 1).result(SECONDS_MAX)
    executor.shutdown()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_queued_calls_can_be_cancelled_wherever_they_wait(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=1) as executor:
        assert executor.submit(abs, 1).result(SECONDS_MAX) == 1
        with sdk_calls.Gate() as gate:
            first = executor.submit(gate.wait)
            gate.entered(SECONDS_MAX)
            behind = [executor.submit(abs, n) for n in range(3_000)]
            assert behind[-1].cancel()  # it waits here: the worker has too many already
            asked = [future.cancel() for future in behind[:10]]
            concurrent.futures.wait([future for future in behind if future.cancelled()], SECONDS_MAX)
            running = first.cancel()
            gate.open()
        assert not running
        assert first.result(SECONDS_MAX) == "through"
        for future, at_once in zip(behind[:10], asked, strict=True):
            assert future.cancelled() or not at_once
            with pytest.raises(concurrent.futures.CancelledError):
                future.result(SECONDS_MAX)
        assert behind[100].result(SECONDS_MAX) == 100


def test_a_call_behind_a_long_one_goes_to_an_idle_hand(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=2) as executor:
        assert executor.wait_for_workers(2, SECONDS_MAX)
        list(executor.map(abs, range(2_000), chunksize=1))  # now many are sent ahead
        with sdk_calls.Gate() as gate:
            first = executor.submit(gate.wait)
            others = [executor.submit(abs, n) for n in range(500)]
            assert [future.result(SECONDS_MAX) for future in others] == list(range(500))
            assert not first.done()
            gate.open()
            assert first.result(SECONDS_MAX) == "through"


def test_a_result_does_not_wait_for_the_call_behind_it(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=1) as executor:
        list(executor.map(abs, range(2_000), chunksize=1))  # now many travel together
        for _ in range(20):
            with sdk_calls.Gate() as gate:
                quick = [executor.submit(abs, n) for n in range(50)]
                long = executor.submit(gate.wait)
                assert [future.result(SECONDS_MAX) for future in quick] == list(range(50))
                assert not long.done()
                gate.open()
                assert long.result(SECONDS_MAX) == "through"


def test_calls_explain_themselves(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=1) as executor, sdk_calls.Gate() as gate:
        first = executor.submit(gate.wait)
        gate.entered(SECONDS_MAX)
        second = executor.submit(abs, 1)
        third = executor.submit(abs, second)
        assert "has the call" in first.why()
        assert "other calls" in second.why()
        assert "results of other calls" in third.why()
        assert second.eta().unknown
        gate.open()
        assert third.result(SECONDS_MAX) == 1
        assert "ended in" in second.why()
        assert executor.submit(print, "said in the worker").result(SECONDS_MAX) is None
        assert "said in the worker" in executor.submit(abs, 1).logs() or "said in the worker" in first.logs()


def test_calls_that_wait_for_room_say_what_the_league_says(live: LiveLeague) -> None:
    live.cluster("north").ask("POST", "/v1/drain", {"whole": True, "drain": True})
    live.cluster("south").ask("POST", "/v1/drain", {"whole": True, "drain": True})
    with hanse.Executor({"cpus": 1}, max_workers=1) as executor:
        future = executor.submit(abs, 1)
        deadline = time.monotonic() + SECONDS_MAX
        while "as job" not in (why := future.why()):
            assert time.monotonic() < deadline, why
            time.sleep(0.02)
        assert future.eta().p50 is None
        assert "no worker is connected" in future.eta().unknown
        for cluster in ("north", "south"):
            live.cluster(cluster).ask("POST", "/v1/drain", {"whole": True, "drain": False})
        assert future.result(SECONDS_MAX) == 1


# --- strangers ----------------------------------------------------------------------------------------------


def test_strangers_are_not_listened_to(pool: hanse.Executor) -> None:
    sdk_calls.knock(pool._dispatcher._listener.getsockname())
    assert pool.submit(abs, -1).result(SECONDS_MAX) == 1
    assert pool.worker_count == 2
    assert pool.refused_count >= 1
