"""A task attacks the task of another job on the same machine, for real; nothing is gained.

The same attacks are made by a task of the same job, where they succeed: so it is known that they would.
"""

import os
import signal
from pathlib import Path

import pytest

from hanse.league.config import UserRange
from hanse.live.backends.interface import Stream
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.factory import private_directories
from hanse.live.backends.process.sandbox import SandboxMode, namespace_problem
from hanse.model.effects import LaunchAttempt
from hanse.model.ids import TaskId, job_id, task_id
from hanse.model.messages import Outcome
from tests.live.backends.attack import ALL, ATTACK, OPEN_IN_A_JOB, PYTHON
from tests.live.backends.desk import ESTATE, SIZE, Desk, launch, read, read_until, task, with_desk
from tests.live.backends.places import NODES, process_with, run, shell

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemons become somebody else")
VICTIM = "echo precious > mine; echo set; exec sleep 3600"


async def attacked(desk: Desk, place: Path, attacker: TaskId) -> set[str]:
    """What an attacker could do to the first task."""
    desk.start(launch(shell(VICTIM, SECRET="tok123", PLACE=str(place))))
    await read_until(desk.backend, b"set")
    name = f"{task(0)}.1"
    places = (str(place / "work" / name), str(place / "output" / f"{name}.stdout"))
    attack = run(PYTHON, "-c", ATTACK, str(process_with(b"PLACE=" + bytes(place), b"sleep")), *places)
    end = await desk.run(LaunchAttempt(attacker, 1, 0, SIZE, ESTATE, True, attack))
    pieces = [piece async for piece in desk.backend.output(attacker, 1, Stream.STDOUT)]
    lines = [line.split(":") for line in b"".join(pieces).decode().splitlines()]
    assert end.outcome is Outcome.SUCCEEDED
    assert {line[0] for line in lines} == ALL
    assert (task(0), 1) not in desk.ends
    desk.stop(grace=0)
    await desk.end_of()
    return {line[0] for line in lines if line[1] == "done"}


@pytest.mark.parametrize("driver", ["auto", "rlimit"])
def test_a_task_of_another_job_gains_nothing(place: Path, driver: str) -> None:
    async def story(desk: Desk) -> None:
        assert await attacked(desk, place, task_id(job_id(1, 8), 0)) == set()

    with_desk(lambda: ProcessBackend(place, "north", NODES, user=UserRange(), driver=driver), story)  # type: ignore[arg-type]


def test_the_attacks_are_real_within_a_job(place: Path) -> None:
    async def story(desk: Desk) -> None:
        done = await attacked(desk, place, task(1))
        assert done >= OPEN_IN_A_JOB
        assert "output" not in done  # that is its supervisor's

    with_desk(lambda: ProcessBackend(place, "north", NODES, user=UserRange()), story)


@pytest.mark.skipif(namespace_problem() is not None, reason=str(namespace_problem()))
@pytest.mark.parametrize("attacker", [task(1), task_id(job_id(1, 8), 0)], ids=["same job", "other job"])
def test_in_namespaces_a_task_of_the_same_user_gains_nothing(place: Path, attacker: TaskId) -> None:
    """As for a daemon that is not root: here all tasks are nobody, and so is bubblewrap."""

    async def story(desk: Desk) -> None:
        assert await attacked(desk, place, attacker) == set()

    with_desk(lambda: ProcessBackend(place, "north", NODES, user="nobody", sandbox="namespace"), story)


@pytest.mark.skipif(namespace_problem() is not None, reason=str(namespace_problem()))
def test_in_the_sandbox_a_task_of_the_same_job_gains_nothing(place: Path) -> None:
    async def story(desk: Desk) -> None:
        done = await attacked(desk, place, task(1))
        assert done == set()

    with_desk(lambda: ProcessBackend(place, "north", NODES, user=UserRange(), sandbox="bwrap"), story)


@pytest.mark.skipif(namespace_problem() is not None, reason=str(namespace_problem()))
@pytest.mark.parametrize("mode", ["namespace", "bwrap"])
@pytest.mark.parametrize("variable", ["LD_PRELOAD", "LD_AUDIT"])
def test_bubblewrap_runs_no_code_of_a_task(place: Path, mode: SandboxMode, variable: str) -> None:
    """It starts outside of the sandbox that it makes: there the loader must not obey the task's variables."""

    async def story(desk: Desk) -> None:
        await desk.run(launch(run("sh", "-c", f"echo ${variable}", env=((variable, "/missing.so"),))))
        assert await read(desk.backend) == b"/missing.so\n"
        complaints = await read(desk.backend, stream=Stream.STDERR)
        assert complaints.count(b"object '/missing.so'") == 1  # the shell's; echo is no program of its own

    with_desk(lambda: ProcessBackend(place, "north", NODES, user="nobody", sandbox=mode), story)


@pytest.mark.skipif(namespace_problem() is not None, reason=str(namespace_problem()))
def test_a_namespace_hides_what_the_league_keeps(place: Path) -> None:
    kept = place / "kept"
    kept.mkdir()
    (kept / "identity.pem").write_text("key")
    script = f"cat {kept}/identity.pem; ls {kept}; umount {kept}; unshare -Urm umount {kept}; cat {kept}/*"

    async def story(desk: Desk) -> None:
        open_to_it = f"cd / && echo x > $HOME/y && cat $HOME/y && ls {place} && test -w /tmp"
        assert (await desk.run(launch(shell(open_to_it)))).outcome is Outcome.SUCCEEDED
        assert await read(desk.backend) == b"x\nkept\nwork\n"  # both empty but for its own
        assert (await desk.run(launch(shell(script), 1))).outcome is Outcome.FAILED
        assert await read(desk.backend, 1) == b""
        assert (await desk.run(launch(shell("exit 7"), 2))).exit_code == 7

    with_desk(
        lambda: ProcessBackend(place, "north", NODES, user="nobody", sandbox="namespace", hidden=(kept,)),
        story,
    )


@pytest.mark.skipif(namespace_problem() is not None, reason=str(namespace_problem()))
def test_a_namespace_hides_the_tasks_of_other_runners(place: Path) -> None:
    """Where the league file puts the tasks of all runners into one directory."""
    other = place / "south" / "tasks" / "work" / "1.1"
    other.mkdir(parents=True)
    (other / "mine").write_text("precious")
    hidden = private_directories(place / "home" / "north", str(place))
    assert hidden == (place / "home" / "north", place)

    async def story(desk: Desk) -> None:
        script = f"cat {other}/mine; ls {place}; touch $HOME/x && ls $HOME"
        assert (await desk.run(launch(shell(script)))).outcome is Outcome.SUCCEEDED
        assert await read(desk.backend) == b"north\nx\n"

    tasks = place / "north" / "tasks"
    with_desk(
        lambda: ProcessBackend(tasks, "north", NODES, user="nobody", sandbox="namespace", hidden=hidden),
        story,
    )


def test_a_job_keeps_its_id_when_the_daemon_comes_back(place: Path) -> None:
    def backend() -> ProcessBackend:
        return ProcessBackend(place, "north", NODES, user=UserRange())

    async def before(desk: Desk) -> None:
        desk.start(launch(shell("id -u; echo set; exec sleep 3600")))
        await read_until(desk.backend, b"set")

    async def after(desk: Desk) -> None:
        uid = (await read(desk.backend)).split()[0]
        await desk.run(launch(shell("id -u; id -G; echo ~; echo $HOME; touch $HOME/x"), 1))
        own = (await read(desk.backend, 1)).split()
        assert own[0] == own[1] == uid
        assert Path(os.fsdecode(own[3])) == place / "work" / f"{task(1)}.1"
        other = task_id(job_id(1, 8), 0)
        await desk.run(LaunchAttempt(other, 1, 0, SIZE, ESTATE, True, shell("id -u")))
        assert [piece async for piece in desk.backend.output(other, 1, Stream.STDOUT)] != [uid + b"\n"]
        desk.stop(grace=0)
        await desk.end_of()

    with_desk(backend, before)
    with_desk(backend, after)


def test_a_job_keeps_its_id_when_the_launcher_is_killed(place: Path) -> None:
    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        desk.start(launch(shell("id -u; echo set; exec sleep 3600")))
        uid = (await read_until(desk.backend, b"set")).split()[0]
        os.kill(desk.backend.launcher_pid, signal.SIGKILL)
        await desk.run(launch(shell("id -u"), 1))
        assert (await read(desk.backend, 1)).split() == [uid]
        other = task_id(job_id(1, 8), 0)
        await desk.run(LaunchAttempt(other, 1, 0, SIZE, ESTATE, True, shell("id -u")))
        assert [piece async for piece in desk.backend.output(other, 1, Stream.STDOUT)] != [uid + b"\n"]
        desk.stop(grace=0)
        await desk.end_of()

    with_desk(lambda: ProcessBackend(place, "north", NODES, user=UserRange()), story)


def test_too_few_ids_are_told(place: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(shell("echo set; exec sleep 3600")))
        await read_until(desk.backend, b"set")
        end = await desk.run(
            LaunchAttempt(task_id(job_id(1, 8), 0), 1, 0, SIZE, ESTATE, True, shell("exit 0"))
        )
        assert end.outcome is Outcome.LOST
        assert "user ids" in end.note
        desk.stop(grace=0)
        await desk.end_of()

    with_desk(
        lambda: ProcessBackend(place, "north", NODES, user=UserRange(1_400_000_000 + os.getpid(), 1)), story
    )
