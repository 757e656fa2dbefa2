"""Tasks that pose as workers of another user's executor, and workers that answer what they were not asked."""

import logging
import os
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hanse
from hanse.client.client import LeagueClient
from hanse.sdk.client_pool import open_endpoints
from hanse.security.access_token_issuer import AccessTokenIssuer
from hanse.security.certificate_authority import Authority
from hanse.security.identity import Role
from hanse.security.wall_time import wall_now
from tests.live import sdk_calls
from tests.live.harness import LiveLeague, open_directory
from tests.live.sdk_league import LEAGUE as OWN_LEAGUE
from tests.live.sdk_league import sdk_league
from tests.live.test_hands_as_nobody import LEAGUE, PATHS, an_open_interpreter

SECONDS_MAX = 60.0
CALLS = 60
THIEF = textwrap.dedent(
    """
    import os, pickle, re, sys
    from pathlib import Path
    from hanse.sdk.workers import call_execution, worker
    from hanse.sdk.serialization import PickledValue

    class Evil:
        def __reduce__(self):
            return Path.write_text, (Path(os.environ["THIEF_FILE"]), "code of a thief ran here")

    BODY = pickle.dumps(Evil())
    call_execution.pack = lambda *_: PickledValue(BODY)

    def pose(environment, text):
        child = os.fork()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        readable, writable = os.pipe()
        os.write(writable, text)
        os.close(writable)
        os.dup2(readable, 0)
        os.environ.update(environment)
        worker.main()
        os._exit(0)

    seen, environments = {b"", b"00" * 32, os.read(0, 100)}, [{}]
    for path in Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline"):
            try:
                data = (path / name).read_bytes()
            except OSError:
                continue
            seen.update(re.findall(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", data))
            if name == "environ" and b"HANSE_HAND_ADDRESS" in data and path.name != str(os.getpid()):
                pairs = (entry.partition(b"=") for entry in data.split(bytes(1)) if entry)
                environments.append({key.decode(): value.decode() for key, _, value in pairs})
    job, workers = os.environ["THIEF_JOB"], int(os.environ["THIEF_HANDS"])
    for index in range(workers):
        for attempt in (1, 2):
            who = {"HANSE_JOB": job, "HANSE_TASK": str(index), "HANSE_ATTEMPT": str(attempt)}
            environments += [{**found, **who} for found in environments[: 1 + workers]]
    print(len(seen), "words,", len(environments), "environments", flush=True)
    codes = {pose(found, text) for found in environments for text in sorted(seen)}
    print("ended with", sorted(codes), flush=True)
    """
)
"""Knows the protocol, the executor's address and its workers; takes for a key whatever it can read."""


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLeague]:
    """Workers and thieves are of one user: nobody where the daemons are root."""
    with sdk_league(LEAGUE if os.geteuid() == 0 else OWN_LEAGUE) as league:
        yield league


def test_a_task_of_the_same_user_cannot_pose_as_a_hand(
    live: LiveLeague, caplog: pytest.LogCaptureFixture
) -> None:
    python = an_open_interpreter() if os.geteuid() == 0 else sys.executable
    caplog.set_level(logging.WARNING)
    with (
        open_directory() as directory,
        hanse.Executor(max_workers=2, python=python, retries=9, job={"env": {"PYTHONPATH": PATHS}}) as pool,
    ):
        assert pool.wait_for_workers(2, SECONDS_MAX)
        directory.chmod(0o777)
        program, loot = directory / "thief.py", directory / "loot"
        program.write_text(THIEF)
        program.chmod(0o644)
        environment = dict(pool._provisioner._form["env"])  # type: ignore[call-overload]
        given = {key: environment[key] for key in ("HANSE_HAND_ADDRESS", "HANSE_HAND_PIN", "PYTHONPATH")}
        given |= {"THIEF_FILE": str(loot), "THIEF_JOB": pool.tasks[0].partition(".")[0], "THIEF_HANDS": "2"}
        thief: dict[str, Any] = {"command": [python, str(program)], "env": given, "cpus": 1}
        job = submitted_by_another(live, thief)
        results: list[tuple[int, int]] = []
        ended = False
        while not ended or len(results) < CALLS:
            results.append(
                (len(results), pool.submit(sdk_calls.later, 0.05, len(results)).result(SECONDS_MAX))
            )
            row = live.broker().ask("GET", f"/v1/jobs/{job}")["row"]
            ended = row["state"] in ("succeeded", "failed", "cancelled")
        said = live.output(job) + live.output(job, stream="stderr")
        assert not loot.exists(), said
        assert [given for given, got in results if got != given] == [], said
        assert "ended with [4]" in said  # no try got past the proof, and the thief made all of them
        assert pool.refused_count >= 1
        assert pool.worker_count == 2
    assert "without its key" in caplog.text


RACER = textwrap.dedent(
    """
    import ctypes, os
    syscall, PIDFD_GETFD = ctypes.CDLL(None, use_errno=True).syscall, 438
    tried, absent, newest = set(), {}, os.getpid()
    print("ready", flush=True)
    while not os.path.exists(os.environ["THIEF_END"]):
        child = os.fork()  # its number says how far the kernel has counted: nothing need be read from /proc
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        absent.update(dict.fromkeys(range(newest + 1, child), 0))
        newest = child
        for pid in list(absent):
            try:
                process = os.pidfd_open(pid)
            except OSError:
                absent[pid] += 1
                if absent[pid] > 1_000:
                    del absent[pid]
                continue
            taken = syscall(PIDFD_GETFD, process, 0, 0)
            if taken >= 0:
                os.set_blocking(taken, False)
                print("GOT", pid, os.read(taken, 100), flush=True)
            if pid not in tried:
                tried.add(pid)
                print("tried", pid, flush=True)
            os.close(process)
    """
)
"""Is there before the workers are, and tries to take the standard input of every process that begins after
it, again and again while that process lives."""


@pytest.mark.skipif(os.geteuid() != 0, reason="a task of the daemons' own user can read all that they have")
def test_a_task_that_waits_for_hands_to_start_cannot_read_their_keys(live: LiveLeague) -> None:
    python = an_open_interpreter()
    with open_directory() as directory:
        end = directory / "end"
        racer = {"command": [python, "-S", "-c", RACER], "env": {"THIEF_END": str(end)}, "cpus": 1}
        job = submitted_by_another(live, racer)
        try:
            wait_for(partial(is_said, live, job, "ready"))
            for _ in range(3):
                with hanse.Executor(max_workers=2, python=python, job={"env": {"PYTHONPATH": PATHS}}) as pool:
                    came = pool.wait_for_workers(2, SECONDS_MAX)
                    assert "GOT" not in live.output(job)
                    assert came
                    for member in list(pool._dispatcher.pool.workers):
                        wait_for(partial(is_said, live, job, f"tried {member.connection.hello.pid}"))
        finally:
            end.touch()
        live.wait(job)
        assert "GOT" not in live.output(job)


def test_a_hand_imports_nothing_from_its_fresh_directory(live: LiveLeague) -> None:
    python = an_open_interpreter() if os.geteuid() == 0 else sys.executable
    with hanse.Executor(max_workers=1, python=python, job={"env": {"PYTHONPATH": PATHS}}) as pool:
        home = pool.submit(os.getcwd).result(SECONDS_MAX)
        paths = pool.submit(search_paths).result(SECONDS_MAX)
        assert [path for path in paths if path == "" or path.startswith(home)] == []


def search_paths() -> list[str]:
    import site

    return [*sys.path, *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]


def submitted_by_another(live: LiveLeague, job: dict[str, Any]) -> str:
    """Submit a job as another person than whoever uses the executor: one with a submitter's token."""
    token = AccessTokenIssuer(live.home, Authority.open(live.home.authority), wall_now).create(
        Role.SUBMITTER, f"mallory-{uuid.uuid4().hex[:8]}", 1
    )
    doors = open_endpoints(None, token)
    try:
        result = LeagueClient(doors).submit([{**job, "client_id": uuid.uuid4().hex}])[0]
    finally:
        doors.close()
    assert result.job, result
    return result.job


def is_said(live: LiveLeague, job: str, line: str) -> bool:
    """Whether a job's first task, which runs until it is told to end, has written this line."""
    runs = live.tasks(job)[0]["state"] == "running"  # before that there is no output to ask for
    return runs and line in live.output(job).splitlines()


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    give_up = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def answer_another_call(path: str) -> str:
    """In a worker: answer a call that this worker was not given, with a pickle that makes a file."""
    import gc
    import pickle

    from hanse.sdk.workers.worker_protocol import VALUE, CallOutcome, Payload, Results, encode_frame

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.write_text, (Path(path), "code of a worker ran here")

    channel = next(one for one in gc.get_objects() if type(one).__name__ == "ExecutorConnection")
    outcomes = tuple(CallOutcome(number, VALUE, Payload(pickle.dumps(Evil()))) for number in (1_000, 1_001))
    channel.send(encode_frame(Results(outcomes, 1)))
    return "sent"


def test_a_result_of_a_call_that_the_hand_was_not_given_is_refused(
    live: LiveLeague, caplog: pytest.LogCaptureFixture
) -> None:
    python = an_open_interpreter() if os.geteuid() == 0 else None
    environment = {"PYTHONPATH": os.pathsep.join([PATHS, str(Path(__file__).parents[2])])}
    with (
        open_directory() as directory,
        hanse.Executor(max_workers=1, python=python, retries=0, job={"env": environment}) as pool,
    ):
        loot = directory / "loot"
        with pytest.raises(hanse.WorkerLostError):
            pool.submit(answer_another_call, str(loot)).result(SECONDS_MAX)
        assert pool.submit(abs, -1).result(SECONDS_MAX) == 1  # another worker has come
        assert not loot.exists()
        assert pool.refused_count == 1
    assert "a result of call 1000, which this worker does not have" in caplog.text
