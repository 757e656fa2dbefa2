"""Directories for real tasks, and what may not be left of them: no process, no control group."""

import errno
import fcntl
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hanse.core.config import NodeConfig
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.cgroups import group_name
from hanse.model.program import Program, encode_program
from hanse.model.resources import Resources

NODES = (NodeConfig(Resources(cpu=4_000, memory=1 << 30), (("zone", "a"),)),) * 2
GONE_SECONDS_MAX = 20.0
"""How long a launcher that nobody needs may take to go on a busy machine."""
PROCESSES_MAX = 2_000
GROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


def shell(script: str, **env: str) -> bytes:
    """A payload that runs a script."""
    return encode_program(Program(("/bin/sh", "-c", script), tuple(sorted(env.items()))))


def run(*argv: str, env: tuple[tuple[str, str], ...] = (), workdir: str = "") -> bytes:
    """A payload that runs a program."""
    return encode_program(Program(argv, env, workdir))


STUBBORN = shell("trap '' TERM; echo set; while :; do sleep 3600; done")
"""Ignores SIGTERM; so does its ``sleep``, which inherits that."""


def alive(pid: int) -> bool:
    """Whether this process runs; one that waits to be collected by its parent does not."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return False
    return fields.split()[0] not in "ZX"


def wait_gone(pid: int) -> None:
    """Wait for the end of a process that need not be ours."""
    try:
        watch = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL):  # older kernels say the latter while it goes
            return
        raise
    try:
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        assert poll.poll(GONE_SECONDS_MAX * 1_000), f"process {pid} is still there"
    finally:
        os.close(watch)


def processes_of(place: Path) -> list[int]:
    """Launchers, supervisors and tasks of this directory: all name it in arguments, environment or group."""
    marks = (os.fsencode(place), group_name(place).encode())
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            texts = [(entry / name).read_bytes() for name in ("cmdline", "environ", "cgroup")]
        except OSError:  # it is gone
            continue
        if any(mark in text for mark in marks for text in texts) and alive(int(entry.name)):
            found.append(int(entry.name))
    return found


def groups_of(place: Path) -> list[Path]:
    """Control groups of this directory, in any hierarchy."""
    name = group_name(place)
    return [Path(path) for path, _, _ in os.walk(GROUPS) if Path(path).name == name]


def groups_in(base: Path) -> list[Path]:
    """The control groups of supervisors below a runner's own."""
    return [path for path in base.iterdir() if path.is_dir()]


def wait_let_go(record: Path) -> None:
    """Wait until the supervisor of an attempt has told its end and let go of its record."""
    with record.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def wait_all_gone(place: Path) -> None:
    """Wait until nothing of this directory runs."""
    for _ in range(PROCESSES_MAX):
        left = processes_of(place)
        if not left:
            return
        wait_gone(left[0])
    raise AssertionError(f"there are always more: {processes_of(place)}")


def plain_backend(place: Path) -> ProcessBackend:
    """A backend without any option."""
    return ProcessBackend(place, "north", NODES)


@contextmanager
def place_for_tasks() -> Iterator[Path]:
    """A directory that tasks can reach, and the proof that nothing is left of it."""
    place = Path(tempfile.mkdtemp(prefix="hanse-tasks-"))
    place.chmod(0o755)
    try:
        yield place
        wait_all_gone(place)
        assert groups_of(place) == []
    finally:
        for pid in processes_of(place):
            os.kill(pid, signal.SIGKILL)
            wait_gone(pid)
        for group in groups_of(place):
            for below in (*groups_in(group), group):
                below.rmdir()
        shutil.rmtree(place, ignore_errors=True)


def process_with(variable: bytes, program: bytes) -> int:
    """The process with this in its environment, which we see as root: a task in a namespace does not know its
    own number outside."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
                if words[0] == program and variable in (path / "environ").read_bytes():
                    return int(path.name)
            except OSError:
                continue
        time.sleep(0.01)  # the shell has not become it yet
    raise AssertionError(f"no process has {variable!r}")
