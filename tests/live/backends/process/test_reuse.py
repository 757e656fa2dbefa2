"""A supervisor that is used again: nothing of one attempt shows in the next one's limits, usage or output."""

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path

import pytest

from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.cgroups import choose_limits
from hanse.model.messages import Outcome
from hanse.model.resources import Resources
from tests.live.backends.desk import HOUR, Desk, launch, read, task, with_desk
from tests.live.backends.places import (
    NODES,
    STUBBORN,
    groups_in,
    groups_of,
    plain_backend,
    processes_of,
    run,
    shell,
    wait_gone,
    wait_let_go,
)
from tests.live.backends.process.test_recovery import supervisor_of

GROUPS_ONLY = pytest.mark.skipif(
    choose_limits("auto", Path("/hanse-test")).driver == "rlimit",
    reason="no control groups can be written here",
)
SMALL = Resources(cpu=1_000, memory=32 << 20)
LARGE = Resources(cpu=1_000, memory=256 << 20)
FILL_100M = run("dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1")
FILL_20M = run("dd", "if=/dev/zero", "of=/dev/null", "bs=20M", "count=1")
SPIN = shell("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
MORE_THAN_DESKS = 160
"""Attempts at once of which some have a supervisor that cannot be used again."""


def slots(place: Path) -> list[str]:
    """The names of the supervisors' groups, of each hierarchy."""
    return sorted(path.name for base in groups_of(place) for path in groups_in(base))


@pytest.mark.parametrize("driver", ["auto", "rlimit"])
def test_attempts_one_after_the_other_have_one_supervisor(place: Path, driver: str) -> None:
    async def story(desk: Desk) -> None:
        for index in range(5):
            assert (await desk.run(launch(shell(f"echo {index}"), index))).outcome is Outcome.SUCCEEDED
            assert await read(desk.backend, index) == f"{index}\n".encode()
        assert len({supervisor_of(place, index) for index in range(5)}) == 1
        assert len(processes_of(place)) == 3  # the launcher, a watchdog, and it

    with_desk(lambda: ProcessBackend(place, "north", NODES, driver=driver), story)  # type: ignore[arg-type]


@GROUPS_ONLY
def test_equal_limits_keep_their_groups(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(run("true"), 0))
        before = slots(place)
        inodes = [path.stat().st_ino for base in groups_of(place) for path in groups_in(base)]
        await desk.run(launch(run("true"), 1))
        assert before != []
        assert slots(place) == before
        assert [path.stat().st_ino for base in groups_of(place) for path in groups_in(base)] == inodes

    with_desk(lambda: plain_backend(place), story)


@GROUPS_ONLY
def test_what_an_attempt_used_is_not_counted_again(place: Path) -> None:
    async def story(desk: Desk) -> None:
        busy = (await desk.run(launch(SPIN, 0))).usage
        calm = (await desk.run(launch(run("true"), 1))).usage
        assert busy is not None
        assert calm is not None
        assert calm.cpu < busy.cpu // 4
        greedy = (await desk.run(launch(FILL_20M, 2))).usage
        modest = (await desk.run(launch(run("true"), 3))).usage
        assert greedy is not None
        assert modest is not None
        assert greedy.memory > 15 << 20
        assert modest.memory < 8 << 20
        assert len({supervisor_of(place, index) for index in range(4)}) == 1

    with_desk(lambda: plain_backend(place), story)


def test_without_groups_the_usage_is_the_attempts_own_too(place: Path) -> None:
    async def story(desk: Desk) -> None:
        greedy = (await desk.run(launch(FILL_20M, 0))).usage
        modest = (await desk.run(launch(run("true"), 1))).usage
        assert greedy is not None
        assert modest is not None
        assert greedy.memory > 15 << 20
        assert modest.memory < 8 << 20
        assert modest.cpu < 1_000_000

    with_desk(lambda: ProcessBackend(place, "north", NODES, driver="rlimit"), story)


@GROUPS_ONLY
def test_each_attempt_has_its_own_limits(place: Path) -> None:
    async def story(desk: Desk) -> None:
        sizes = [LARGE, SMALL, Resources(cpu=1_000), SMALL, LARGE]
        for index, size in enumerate(sizes):
            end = await desk.run(launch(FILL_100M, index, size=size))
            assert end.note == ("out of memory" if size is SMALL else "")
        for index, size in enumerate((SMALL, LARGE), 10):
            assert (await desk.run(launch(run("true"), index, size=size))).note == ""

    with_desk(lambda: plain_backend(place), story)


@GROUPS_ONLY
def test_being_out_of_memory_is_said_once(place: Path) -> None:
    async def story(desk: Desk) -> None:
        for index, (payload, note) in enumerate(
            [(FILL_100M, "out of memory"), (run("true"), ""), (FILL_100M, "out of memory"), (run("true"), "")]
        ):
            assert (await desk.run(launch(payload, index, size=SMALL))).note == note

    with_desk(lambda: plain_backend(place), story)


def test_nothing_of_the_surroundings_is_inherited(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(shell("cd /; umask 0; ulimit -n 17; export OTHER=x", SECRET="one"), 0))
        await desk.run(launch(shell("env; umask; ulimit -n; ls -A | wc -l"), 1))
        said = (await read(desk.backend, 1)).decode().split()
        assert not any(word.startswith(("SECRET=", "OTHER=")) for word in said)
        assert "HANSE_TASK=1" in said
        assert said[-3:-2] == ["0022"]
        assert said[-2] != "17"
        assert said[-1] == "0"

    with_desk(lambda: plain_backend(place), story)


def test_a_stop_that_comes_too_late_does_not_hit_the_next_attempt(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(run("true"), 0))
        pid = supervisor_of(place)
        os.kill(pid, signal.SIGRTMIN)  # as a launcher does that has not heard of the end yet: no grace
        end = await desk.run(launch(shell("sleep 0.1; exit 3"), 1))
        assert supervisor_of(place, 1) == pid
        assert (end.outcome, end.exit_code) == (Outcome.FAILED, 3)

    with_desk(lambda: plain_backend(place), story)


def test_the_second_attempt_can_be_stopped_and_guarded(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(run("true"), 0))
        desk.start(launch(STUBBORN, 1))
        await desk.start_of(1)
        assert supervisor_of(place, 1) == supervisor_of(place, 0)
        desk.stop(1, grace=0)
        assert (await desk.end_of(1)).outcome is Outcome.CANCELLED
        end = await desk.run(launch(run("true"), 2))
        assert end.outcome is Outcome.SUCCEEDED
        desk.start(launch(STUBBORN, 3))
        await desk.start_of(3)
        desk.guard(1)
        assert (await desk.end_of(3)).outcome is Outcome.LOST

    with_desk(lambda: plain_backend(place), story)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_dies_while_it_waits_is_replaced(place: Path, number: int) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(run("true"), 0))
        os.kill(supervisor_of(place), number)
        wait_gone(supervisor_of(place))
        assert (await desk.run(launch(run("true"), 1))).outcome is Outcome.SUCCEEDED
        assert supervisor_of(place, 1) != supervisor_of(place, 0)
        assert len(set(slots(place))) <= 1

    with_desk(lambda: plain_backend(place), story)


def test_one_that_waits_goes_with_its_launcher(place: Path) -> None:
    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        await desk.run(launch(run("true"), 0))
        os.kill(desk.backend.launcher_pid, signal.SIGKILL)
        wait_gone(supervisor_of(place))
        assert slots(place) == []
        assert (await desk.run(launch(run("true"), 1))).outcome is Outcome.SUCCEEDED

    with_desk(lambda: plain_backend(place), story)


def test_one_that_waits_goes_also_while_a_younger_one_is_busy(place: Path) -> None:
    """A younger one may not keep the other end of its desk open."""

    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        for index in range(2):
            desk.start(launch(run("sleep", "3600"), index))
            await desk.start_of(index)
        desk.stop(0, grace=0)
        await desk.end_of(0)
        os.kill(desk.backend.launcher_pid, signal.SIGKILL)
        wait_gone(supervisor_of(place, 0))
        desk.stop(1, grace=0)
        assert (await desk.end_of(1)).outcome is Outcome.CANCELLED

    with_desk(lambda: plain_backend(place), story)


def test_groups_of_one_that_was_killed_with_its_launcher_are_swept(place: Path) -> None:
    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        await desk.run(launch(run("true"), 0))
        old = set(slots(place))
        pids = (supervisor_of(place), desk.backend.launcher_pid)
        os.kill(pids[1], signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            wait_gone(pid)
        assert (await desk.run(launch(run("true"), 1))).outcome is Outcome.SUCCEEDED
        assert old.isdisjoint(slots(place))

    with_desk(lambda: plain_backend(place), story)


def test_a_supervisor_that_outlived_its_launcher_goes_after_its_attempt(place: Path) -> None:
    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        await desk.run(launch(run("true"), 0))
        desk.start(launch(shell("read x < /dev/null; sleep 3600"), 1))
        await desk.start_of(1)
        old = supervisor_of(place, 1)
        os.kill(desk.backend.launcher_pid, signal.SIGKILL)
        wait_gone(desk.backend.launcher_pid)
        desk.stop(1, grace=HOUR)
        assert (await desk.end_of(1)).outcome is Outcome.CANCELLED
        wait_gone(old)
        assert (await desk.run(launch(run("true"), 2))).outcome is Outcome.SUCCEEDED

    with_desk(lambda: plain_backend(place), story)


def test_a_long_request_gets_a_supervisor_of_its_own(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(run("true"), 0))
        await desk.run(launch(run("echo", "x" * 100_000), 1))
        assert await read(desk.backend, 1) == b"x" * 100_000 + b"\n"
        assert supervisor_of(place, 1) != supervisor_of(place, 0)
        await desk.run(launch(run("echo", "y"), 2))
        assert await read(desk.backend, 2) == b"y\n"

    with_desk(lambda: plain_backend(place), story)


# --- nothing leaks ------------------------------------------------------------------------------------------


def test_nothing_leaks_with_use(place: Path) -> None:
    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        await desk.run(launch(run("true"), 0))
        wait_let_go(place / "records" / f"{task(0)}.1")
        pids = (supervisor_of(place), desk.backend.launcher_pid)
        open_files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]  # noqa: PTH208  numbers only
        for index in range(1, 40):
            await desk.run(launch(shell("echo out; echo err >&2"), index))
        wait_let_go(place / "records" / f"{task(39)}.1")
        assert supervisor_of(place, 39) == pids[0]
        assert [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids] == open_files  # noqa: PTH208  as above

    with_desk(lambda: plain_backend(place), story)


def test_more_at_once_than_can_be_used_again(place: Path) -> None:
    async def story(desk: Desk) -> None:
        for index in range(MORE_THAN_DESKS):
            desk.start(launch(run("sleep", "3600"), index))
        for index in range(MORE_THAN_DESKS):
            await desk.start_of(index)
            desk.stop(index, grace=0)
        for index in range(MORE_THAN_DESKS):
            assert (await desk.end_of(index)).outcome is Outcome.CANCELLED
        assert (await desk.run(launch(run("true"), MORE_THAN_DESKS))).outcome is Outcome.SUCCEEDED

    with_desk(lambda: plain_backend(place), story)


# --- whoever is killed --------------------------------------------------------------------------------------

STRUCK = 200
EVERY = 8
WIDTH = 12


def test_kills_at_any_moment_run_nothing_twice(place: Path) -> None:
    """Launchers and supervisors, busy and waiting, are killed while attempts come and go."""
    choose = random.Random(5)
    ran = place / "ran"
    ran.mkdir()
    ran.chmod(0o777)
    outcomes: dict[Outcome, int] = {}

    async def one(desk: Desk, index: int, room: asyncio.Semaphore) -> None:
        async with room:
            desk.start(launch(shell(f"echo x >> {ran}/{index}"), index))
            end = await desk.end_of(index)
            trace = ran / str(index)
            said = trace.read_text() if trace.exists() else ""
            assert said == "x\n" or (end.outcome is Outcome.LOST and said == ""), (end, said)
            outcomes[end.outcome] = outcomes.get(end.outcome, 0) + 1
            if index % EVERY == 0:
                strike(desk, index)
            desk.forget(index)

    def strike(desk: Desk, index: int) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        victim = desk.backend.launcher_pid if choose.random() < 0.5 else supervisor_of(place, index)
        if victim:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)

    async def story(desk: Desk) -> None:
        room = asyncio.Semaphore(WIDTH)
        await asyncio.gather(*(one(desk, index, room) for index in range(STRUCK)))
        assert (await desk.run(launch(run("true"), STRUCK))).outcome is Outcome.SUCCEEDED
        assert outcomes.keys() <= {Outcome.SUCCEEDED, Outcome.LOST}
        assert outcomes[Outcome.SUCCEEDED] > STRUCK // 2

    with_desk(lambda: plain_backend(place), story)
