"""Workers of real executors: what happens when they end, and when pools grow, shrink and are left behind."""

import concurrent.futures
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hanse
from tests.live import sdk_calls
from tests.live.harness import LiveLeague, open_directory
from tests.live.sdk_league import sdk_league

SECONDS_MAX = 60.0
"""A result that has not come by then will not come."""


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLeague]:
    with sdk_league() as league:
        yield league


def test_a_hand_that_dies_costs_a_retry(live: LiveLeague, tmp_path: Path) -> None:
    with hanse.Executor(max_workers=1, retries=1) as executor:
        assert executor.submit(sdk_calls.dies_once, str(tmp_path / "flag")).result(SECONDS_MAX) == "second"


def test_a_call_that_kills_its_hands_fails_and_says_how(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=1, retries=1) as executor:
        future = executor.submit(os._exit, 9)
        innocent = [executor.submit(abs, n) for n in range(100)]
        with pytest.raises(hanse.WorkerLostError, match="exit code 9") as caught:
            future.result(SECONDS_MAX)
        assert caught.value.code == 9
        assert caught.value.task
        assert [one.result(SECONDS_MAX) for one in innocent] == list(range(100))


def test_an_executor_that_ends_still_says_how_its_hand_was_lost(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=1, retries=0) as executor:
        future = executor.submit(os._exit, 5)
    error = future.exception(SECONDS_MAX)
    assert isinstance(error, hanse.WorkerLostError)
    assert error.code == 5


def test_out_of_memory_is_told(live: LiveLeague) -> None:
    with hanse.Executor({"memory": "96MiB"}, max_workers=1, retries=0) as executor:
        with pytest.raises(hanse.WorkerLostError) as caught:
            executor.submit(sdk_calls.hoards, 300).result(SECONDS_MAX)
        assert "memory" in caught.value.note


def test_a_call_without_retries_is_made_once(live: LiveLeague, tmp_path: Path) -> None:
    with hanse.Executor(max_workers=1, retries=0) as executor:
        with pytest.raises(hanse.WorkerLostError):
            executor.submit(sdk_calls.dies_once, str(tmp_path / "flag")).result(SECONDS_MAX)
        assert executor.submit(abs, -1).result(SECONDS_MAX) == 1


def test_hands_killed_at_random_lose_nothing(live: LiveLeague) -> None:
    chooser = random.Random(4)
    with hanse.Executor(max_workers=3, retries=20) as executor:
        assert executor.wait_for_workers(3, SECONDS_MAX)
        futures = [executor.submit(sdk_calls.later, 0.002, n) for n in range(2_000)]
        killed = 0
        for future in futures[100:1_900:200]:
            future.result(SECONDS_MAX)
            pids = [member.connection.hello.pid for member in list(executor._dispatcher.pool.workers)]
            if pids:
                os.kill(chooser.choice(pids), signal.SIGKILL)
                killed += 1
        assert [future.result(SECONDS_MAX) for future in futures] == list(range(2_000))
        assert killed >= 5
        assert executor.wait_for_workers(3, SECONDS_MAX)  # refilled


def test_calls_go_on_while_daemons_are_dead(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=2) as executor:
        assert executor.wait_for_workers(2, SECONDS_MAX)
        names = ("b1", "north")
        for name in names:
            live.kill(name)
        try:
            assert list(executor.map(abs, range(500))) == list(range(500))
        finally:
            live.start(*names)
            live.settle()
        assert executor.submit(abs, -1).result(SECONDS_MAX) == 1


def test_hands_that_never_come_to_life_are_told(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=1, python="/no/such/python") as executor:
        error = executor.submit(abs, 1).exception(SECONDS_MAX)
        assert isinstance(error, hanse.NoWorkersError)
        assert "workers end before they connect" in str(error)
    with open_directory() as directory:
        program = directory / "python"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import not_there"\n', encoding="utf-8")
        program.chmod(0o755)
        with hanse.Executor(max_workers=1, python=str(program)) as executor:
            error = executor.submit(abs, 1).exception(SECONDS_MAX)
    assert isinstance(error, hanse.NoWorkersError)
    assert "No module named 'not_there'" in str(error)
    assert "exit code 1" in str(error)


def test_resources_that_nobody_has_are_refused_with_the_reason(live: LiveLeague) -> None:
    with hanse.Executor({"cpus": 640}) as executor:
        error = executor.submit(abs, 1).exception(SECONDS_MAX)
        assert isinstance(error, hanse.NoWorkersError)
        assert "no node of any allowed cluster" in str(error)


def test_a_module_that_a_hand_lacks_is_sent_or_told(live: LiveLeague, tmp_path: Path) -> None:
    """The module is on no path that workers are told: its functions travel by value, its classes do not."""
    (tmp_path / "only_here.py").write_text("def twice(x):\n    return 2 * x\n", encoding="utf-8")
    with hanse.Executor(max_workers=1) as executor:  # workers are told the path as it is now
        sys.path.insert(0, str(tmp_path))
        try:
            import only_here  # type: ignore[import-not-found]  # made by this test

            assert executor.submit(only_here.twice, 4).result(SECONDS_MAX) == 8
            assert executor.submit(only_here.twice, 5).result(SECONDS_MAX) == 10
        finally:
            sys.path.remove(str(tmp_path))
            sys.modules.pop("only_here", None)


def test_a_pool_grows_with_its_queue_and_shrinks_when_idle(live: LiveLeague) -> None:
    with hanse.Executor(max_workers=(0, 3), idle_seconds=0.3) as executor:
        assert executor.worker_count == 0
        futures = [executor.submit(sdk_calls.later, 0.4, n) for n in range(12)]
        assert executor.wait_for_workers(3, SECONDS_MAX)
        assert [future.result(SECONDS_MAX) for future in futures] == list(range(12))
        deadline = time.monotonic() + SECONDS_MAX
        while executor.worker_count:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert executor.submit(abs, -1).result(SECONDS_MAX) == 1


def test_two_executors_and_two_shapes_do_not_mix(live: LiveLeague) -> None:
    with hanse.Client() as client:
        north = client.submit(os.getenv, "HANSE_CLUSTER", resources={"where": 'zone == "a"'})
        south = client.submit(os.getenv, "HANSE_CLUSTER", resources={"where": 'zone == "b"', "cpus": 2})
        cpus = client.submit(os.getenv, "HANSE_CPUS", resources={"where": 'zone == "b"', "cpus": 2})
        assert north.result(SECONDS_MAX) == "north"
        assert south.result(SECONDS_MAX) == "south"
        assert cpus.result(SECONDS_MAX) == "2"
        with hanse.Executor(max_workers=1) as other:
            assert other.submit(abs, -1).result(SECONDS_MAX) == 1


def test_an_executor_leaves_nothing_behind(live: LiveLeague) -> None:
    executor = hanse.Executor(max_workers=2, name="tidy")
    future = executor.submit(os.getpid)
    pid = future.result(SECONDS_MAX)
    executor.shutdown()
    job = future.worker.partition(".")[0]
    assert live.wait(job)["state"] in ("succeeded", "cancelled")
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_a_hand_that_does_not_want_to_end_is_ended(live: LiveLeague) -> None:
    executor = hanse.Executor(max_workers=1)
    future = executor.submit(sdk_calls.stays)
    pid = future.result(SECONDS_MAX)
    executor.shutdown()
    assert live.wait(future.worker.partition(".")[0])["state"] == "succeeded"
    assert not Path(f"/proc/{pid}").exists()


def test_cancel_futures_at_shutdown(live: LiveLeague) -> None:
    executor = hanse.Executor(max_workers=1)
    with sdk_calls.Gate() as gate:
        first = executor.submit(gate.wait)
        gate.entered(SECONDS_MAX)
        held = executor.submit(abs, first)
        others = [executor.submit(abs, n) for n in range(20)]
        executor.shutdown(wait=False, cancel_futures=True)
        concurrent.futures.wait([*others, held], SECONDS_MAX)
        assert all(future.cancelled() for future in [*others, held])
        gate.open()
    assert first.result(SECONDS_MAX) == "through"
    executor.shutdown()


CLIENT = """
import sys, hanse
from tests.live import sdk_calls
executor = hanse.Executor(max_workers=2, name="killed")
futures = [executor.submit(sdk_calls.pid_then_sleep) for _ in range(2)]
assert executor.wait_for_workers(2, 60)
print(*executor.tasks, flush=True)
futures[0].result()
"""


def test_a_killed_client_leaves_no_hands(live: LiveLeague) -> None:
    client = subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE, cwd=sdk_calls.ROOT)
    assert client.stdout is not None
    with client.stdout:
        job = client.stdout.readline().decode().split()[0].partition(".")[0]
        client.kill()
        client.wait()
    row = live.wait(job)  # workers end by themselves; nobody cancels them
    assert row["state"] == "failed"
    assert row["failed"] == 2
    with hanse.Client() as watcher:
        assert "the executor is gone" in watcher.job(job).logs(0, "stderr")
