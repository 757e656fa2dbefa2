"""Hands of a league whose daemons are root: they run as nobody in particular, a user id of their job's own,
and everything works as for anybody else."""

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hanse
from hanse.league.config import UserRange
from tests.live import sdk_calls
from tests.live.harness import LiveLeague, open_directory
from tests.live.sdk_league import sdk_league

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemons become somebody else")
LEAGUE = """
brokers: [{name: b1}]
clusters:
  - name: north
    backend: process
    nodes: [{count: 2, cpus: 2, memory: 1GiB}]
"""
NOBODY = pwd.getpwnam("nobody")
IDS = range(UserRange().first, UserRange().first + UserRange().count)
SECONDS_MAX = 60.0
PATHS = os.pathsep.join([str(Path(hanse.__file__).parent.parent), sysconfig.get_path("purelib")])


def runs_for_nobody(python: str) -> bool:
    """Whether nobody may run an interpreter, with the packages that workers need."""
    done = subprocess.run(
        [python, "-c", "import hanse.sdk.workers.worker, numpy"],
        user=NOBODY.pw_uid, group=NOBODY.pw_gid, extra_groups=[], env={"PYTHONPATH": PATHS}, cwd="/",
        stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return done.returncode == 0


def an_open_interpreter() -> str:
    """This interpreter, or else the system's own of the same version."""
    name = "python{}.{}".format(*sys.version_info[:2])
    for python in (sys.executable, shutil.which(name, path=os.defpath)):
        try:
            if python and runs_for_nobody(python):
                return python
        except PermissionError:
            continue
    pytest.skip(f"nobody may not run {sys.executable}, and there is no other {name}")


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLeague]:
    with sdk_league(LEAGUE) as league:
        yield league


@pytest.fixture(scope="module")
def pool(live: LiveLeague) -> Iterator[hanse.Executor]:
    python = an_open_interpreter()
    with hanse.Executor(max_workers=2, python=python, job={"env": {"PYTHONPATH": PATHS}}) as executor:
        assert executor.wait_for_workers(2, SECONDS_MAX)
        yield executor


def test_calls_are_made_by_an_id_without_an_account(pool: hanse.Executor) -> None:
    assert pool.submit(os.getuid).result(SECONDS_MAX) in IDS
    assert pool.submit(os.getgid).result(SECONDS_MAX) in IDS
    assert pool.submit(os.getgroups).result(SECONDS_MAX) == []
    assert list(pool.map(lambda n: n + 1, range(300))) == list(range(1, 301))
    with pytest.raises(ValueError, match="no") as caught:
        pool.submit(sdk_calls.fails, "no").result(SECONDS_MAX)
    assert isinstance(caught.value.__cause__, hanse.RemoteTracebackError)


def test_large_values_travel_by_file_between_two_users(pool: hanse.Executor) -> None:
    spool = pool._store
    assert spool is not None
    data = np.arange(1_000_000, dtype=np.int64)
    assert np.array_equal(pool.submit(sdk_calls.doubled, data).result(SECONDS_MAX), 2 * data)
    first = pool.submit(sdk_calls.slow_block, 2_000_000)
    second = pool.submit(sdk_calls.size_and_sum, first)
    assert second.result(SECONDS_MAX) == (2_000_000, 2_000_000)
    owners = [path.stat().st_uid for path in Path(spool.directory).iterdir() if path.name != "token"]
    assert len(owners) == 1
    assert owners[0] in IDS  # the worker wrote it, another worker has read it, and it stays for us
    assert first.result(SECONDS_MAX) == b"\1" * 2_000_000
    assert [path.name for path in Path(spool.directory).iterdir()] == ["token"]


def test_a_dead_hand_costs_a_retry(pool: hanse.Executor) -> None:
    with open_directory() as directory:
        directory.chmod(0o777)
        flag = str(directory / "flag")
        assert pool.submit(sdk_calls.dies_once, flag).result(SECONDS_MAX) == "second"
        assert Path(flag).stat().st_uid in IDS
    lost = pool.submit(os._exit, 9)
    with pytest.raises(hanse.WorkerLostError, match="exit code 9"):
        lost.result(SECONDS_MAX)
    assert pool.submit(abs, -1).result(SECONDS_MAX) == 1


def test_nobody_cannot_do_what_the_daemons_can(pool: hanse.Executor, live: LiveLeague) -> None:
    with pytest.raises(PermissionError):
        pool.submit(Path.read_bytes, live.home.member("north") / "identity.pem").result(SECONDS_MAX)
    with pytest.raises(PermissionError):
        pool.submit(os.setuid, 0).result(SECONDS_MAX)


def test_an_interpreter_that_nobody_may_run_is_told(live: LiveLeague) -> None:
    with open_directory() as directory:
        closed = directory / "closed"
        closed.mkdir(0o700)
        python = closed / "python"
        python.symlink_to(sys.executable)
        with (
            hanse.Executor(max_workers=1, python=str(python)) as executor,
            pytest.raises(hanse.NoWorkersError) as caught,
        ):
            executor.submit(abs, -1).result(SECONDS_MAX)
    assert "Permission denied" in str(caught.value)
    assert "nobody" in str(caught.value)
