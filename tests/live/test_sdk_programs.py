"""Programs that use a league from Python: jobs, clients, asyncio, joblib, scripts and the examples."""

import asyncio
import operator
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


# --- jobs, clients, decorators ------------------------------------------------------------------------------


def test_jobs_from_python(live: LiveLeague, tmp_path: Path) -> None:
    with hanse.Client() as client:
        job = client.run("echo out; echo err >&2", count=2)
        assert job.result(SECONDS_MAX) == "out\n"
        assert job.logs(1, "stderr") == "err\n"
        assert b"".join(job.follow(1)) == b"out\n"
        assert job.state == "succeeded"
        assert "ended" in job.why() or "succeeded" in job.why()
        file = tmp_path / "job.yaml"
        file.write_text("command: exit 3\n", encoding="utf-8")
        bad = client.submit_job(file)
        with pytest.raises(hanse.JobFailedError, match="exit code 3"):
            bad.result(SECONDS_MAX)
        again = bad.retry()
        assert again.id != bad.id
        assert again.wait(SECONDS_MAX).state == "failed"
        long = client.run("sleep", "100")
        with pytest.raises(TimeoutError):
            long.wait(0.01)
        long.cancel()
        assert [row.state for row in long.watch()][-1] == "cancelled"
        assert client.plan({"command": "true"}).starts_now
        with pytest.raises(hanse.SdkError, match="comand"):
            client.submit_job({"comand": "true"})
        with pytest.raises(hanse.JobRefusedError, match="no node"):
            client.submit_job({"command": "true", "cpus": 640})
        assert long.id in [row.id for row in client.jobs("cancelled")]


def test_a_watched_job_is_seen_in_every_state_though_its_broker_dies(live: LiveLeague) -> None:
    with hanse.Client() as client, sdk_calls.Gate() as gate:
        job = client.run(gate.command())
        rows = job.watch()
        states = [next(rows).state]
        gate.entered(SECONDS_MAX)
        while states[-1] != "running":
            states.append(next(rows).state)
        owner = job.row().owner
        live.kill(owner)
        live.start(owner)
        gate.open()
        states += [row.state for row in rows]
        assert states[-1] == "succeeded"
        assert "running" in states


def test_the_async_client(live: LiveLeague) -> None:
    async def story() -> tuple[Any, ...]:
        async with hanse.AsyncClient(max_workers=1) as client:
            call = await client.submit(operator.add, 1, 2)
            each = [value async for value in client.map(abs, range(-3, 0))]
            job = await client.run("echo hello")
            said = await job.result(SECONDS_MAX)
            states = [row.state async for row in job.watch()]
            return call, each, said, states[-1], (await client.plan({"command": "true"})).starts_now

    assert asyncio.run(story()) == (3, [3, 2, 1], "hello\n", "succeeded", True)


def test_the_decorator(live: LiveLeague) -> None:
    assert sdk_calls.tasked(2) == ("tasked", 4)
    with hanse.Client(max_workers=1):
        future = sdk_calls.tasked.submit(3)
        assert future.result(SECONDS_MAX) == ("tasked", 6)
        assert future.cluster == "south"
        assert list(sdk_calls.tasked.map([1, 2])) == [("tasked", 2), ("tasked", 4)]


def test_joblib_runs_on_the_league(live: LiveLeague) -> None:
    joblib = pytest.importorskip("joblib")
    from hanse.sdk.joblib_backend import register

    register()
    with joblib.parallel_config("hanse", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(operator.mul)(n, n) for n in range(40))
        assert found == [n * n for n in range(40)]
        with pytest.raises(ValueError, match="told"):
            joblib.Parallel()(joblib.delayed(sdk_calls.fails)("told") for _ in range(3))


# --- programs ----------------------------------------------------------------------------------------------

SCRIPT = """
import hanse

class Point:
    def __init__(self, x):
        self.x = x

def moved(point):
    return Point(point.x + 1)

executor = hanse.Executor(max_workers=1, name="script")
executor.submit(moved, Point(1)).add_done_callback(
    lambda future: print(type(future.result()) is Point, future.result().x, flush=True))
"""


def test_a_script_needs_no_shutdown_and_its_own_classes_come_back(live: LiveLeague) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True 2\n", "", 0)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("calls.py", "871 takes 178 steps"),
        ("graph.py", "6 millions"),
        ("jobs.py", "succeeded, task 0, task 1, task 2"),
        ("async_calls.py", "[0, 1, 4, 9, 16] from a job"),
    ],
)
def test_the_examples_run(live: LiveLeague, name: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, sdk_calls.ROOT / "examples" / name],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert says in done.stdout


def test_every_example_is_run() -> None:
    (run,) = [mark for mark in test_the_examples_run.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert sorted(name for name, _ in run.args[1]) == sorted(
        path.name for path in (sdk_calls.ROOT / "examples").glob("*.py")
    )
