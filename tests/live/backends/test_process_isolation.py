"""A task attacks the task of another job on the same machine, for real; nothing is gained.

The same attacks are made by a task of the same job, where they succeed: so it is known that they would.
"""

import os
from pathlib import Path

import pytest

from hanse.live.backends.interface import Stream
from hanse.live.backends.process import ProcessBackend
from hanse.live.backends.task_users import UserRange
from hanse.model.commands import Launch
from hanse.model.ids import TaskId, job_id, task_id
from hanse.model.messages import Outcome
from tests.live.backends.desk import ESTATE, SIZE, Desk, launch, read, read_until, task, with_desk
from tests.live.backends.places import NODES, run, shell

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemons become somebody else")
PYTHON = "/usr/bin/python3"
VICTIM = shell("echo precious > mine; echo pid $$ set; exec sleep 3600", SECRET="tok123")
ATTACK = """
import ctypes, os, signal, sys
pid, work, output = int(sys.argv[1]), sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)

def trace():
    if libc.ptrace(16, pid, None, None):
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0x40000000)
    libc.ptrace(17, pid, None, None)

def memory():
    with open(f"/proc/{pid}/maps") as maps:
        place = int(maps.readline().split("-")[0], 16)
    with open(f"/proc/{pid}/mem", "rb") as file:
        file.seek(place)
        assert file.read(4)

def memory_by_call():
    with open("/proc/self/maps") as maps:
        start = int(maps.readline().split("-")[0], 16)
    with open(f"/proc/{pid}/stat") as stat:  # the place of its stack, which is not told to everybody
        stack = int(stat.read().rpartition(")")[2].split()[25])
    here = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    there = (ctypes.c_size_t * 2)(stack or start, 8)
    if libc.process_vm_readv(pid, here, 1, there, 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")

def written():
    with open(f"{work}/theirs", "w"):
        pass

attacks = {
    "environ": lambda: open(f"/proc/{pid}/environ", "rb").read().index(b"tok123"),
    "cwd": lambda: os.listdir(f"/proc/{pid}/cwd"),
    "descriptors": lambda: os.listdir(f"/proc/{pid}/fd"),
    "memory": memory,
    "memory by call": memory_by_call,
    "root": lambda: os.listdir(f"/proc/{pid}/root/"),
    "program": lambda: os.readlink(f"/proc/{pid}/exe"),
    "directory": lambda: os.listdir(work),
    "file": lambda: open(f"{work}/mine").read(),
    "write": written,
    "output": lambda: open(output).read(),
    "ptrace": trace,
    "signal": lambda: os.kill(pid, signal.SIGCONT),
    "limit": lambda: libc.prlimit(pid, 7, None, ctypes.create_string_buffer(16)) and 1 / 0,
}
for name, attack in attacks.items():
    try:
        attack()
    except Exception as error:
        print(name, "refused", type(error).__name__, sep=":", flush=True)
    else:
        print(name, "done", sep=":", flush=True)
"""
OPEN_IN_A_JOB = {"environ", "cwd", "directory", "file", "write", "signal", "root", "program"}
"""What tasks of one job can do to each other; tracing may be closed to them by the machine's settings."""
ALL = OPEN_IN_A_JOB | {"descriptors", "memory", "memory by call", "output", "ptrace", "limit"}


async def attacked(desk: Desk, place: Path, attacker: TaskId) -> set[str]:
    """What an attacker could do to the first task."""
    desk.start(launch(VICTIM))
    said = await read_until(desk.backend, b"set")
    name = f"{task(0)}.1"
    places = (str(place / "work" / name), str(place / "output" / f"{name}.stdout"))
    attack = run(PYTHON, "-c", ATTACK, said.split()[1].decode(), *places)
    end = await desk.run(Launch(attacker, 1, 0, SIZE, ESTATE, True, attack))
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
        await desk.run(Launch(other, 1, 0, SIZE, ESTATE, True, shell("id -u")))
        assert [piece async for piece in desk.backend.output(other, 1, Stream.STDOUT)] != [uid + b"\n"]
        desk.stop(grace=0)
        await desk.end_of()

    with_desk(backend, before)
    with_desk(backend, after)


def test_too_few_ids_are_told(place: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(shell("echo set; exec sleep 3600")))
        await read_until(desk.backend, b"set")
        end = await desk.run(Launch(task_id(job_id(1, 8), 0), 1, 0, SIZE, ESTATE, True, shell("exit 0")))
        assert end.outcome is Outcome.LOST
        assert "user ids" in end.note
        desk.stop(grace=0)
        await desk.end_of()

    with_desk(
        lambda: ProcessBackend(place, "north", NODES, user=UserRange(1_400_000_000 + os.getpid(), 1)), story
    )
