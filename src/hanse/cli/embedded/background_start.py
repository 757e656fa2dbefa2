"""Start of members in the background, and the wait until they are ready.

Members are independent: a member that does not start, or starts slowly, neither stops the others from
starting nor ends them. A member without progress is left alone, still starting, and is reported.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from hanse.cli.embedded.prefork import READY_FD, PreforkError, PreforkServer
from hanse.cli.embedded.running_members import is_member, running_members, save_pids
from hanse.client.access_token import TOKEN_VARIABLE
from hanse.live.start_report import READY as READY_WORD
from hanse.security.home import Home

START_SECONDS_MAX: Final = 30.0
"""Time a member may make no progress before waiting for it ends."""
START_SECONDS_VARIABLE: Final = "HANSE_START_SECONDS"
"""Environment variable that sets a longer time, for a slow disk."""
PROGRESS_SECONDS: Final = 2.0
"""Least time between two progress lines of a member."""
READ_BYTES_MAX: Final = 4_096
"""Bytes of a member's progress read at once."""
LOG_BYTES_MAX: Final = 64 << 10
"""Bytes at the end of a member's log searched for its last line."""
BUSY_SHARE: Final = 0.02
"""Share of a core above which a silent member counts as working; a waiting one uses less."""
CPU_SECONDS_LEAST: Final = 0.02
READ_BYTES_LEAST: Final = 1 << 20
"""Bytes read that count as work, too."""
SILENT_CHECKS_MAX: Final = 20
"""Waiting periods in a row in which a working member may report nothing."""
SMALL_DAEMON_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
"""Environment that limits a daemon's memory: it has few threads, and its arrays are short."""
LOG: Final = "log.jsonl"
_USER_TICKS: Final = 11
"""Field of ``/proc/PID/stat``, counted behind the name, with the CPU time of a process in user mode; the next
field holds the kernel's."""

ShowLine = Callable[[str], None]


class StartOutcome(msgspec.Struct):
    """Result of starting members, by name."""

    ready: list[str] = []
    late: list[str] = []
    """Members that run but are not ready yet; they are left alone."""
    gone: dict[str, str] = {}
    """Members that do not run, with the reason."""


class ProcessWork(msgspec.Struct, frozen=True):
    """Work of a process since its start, as the kernel counts it."""

    cpu: float = 0.0
    """Seconds."""
    read: int = 0
    """Bytes."""


class StartingMember:
    """Member whose start is awaited."""

    def __init__(self, name: str, pid: int, log_offset: int) -> None:
        self.name = name
        self.pid = pid
        self.log_offset = log_offset
        """Size of the log in bytes before this start."""
        self.progress_at = time.monotonic()
        self.shown_at = self.progress_at
        self.partial_line = ""
        """Beginning of a line whose end has not been read yet."""
        self.work = work_of(pid)
        self.silent_checks = 0
        """Waiting periods since the last report."""

    def has_worked(self, seconds: float) -> bool:
        """True if the member has computed or read since the last call, ``seconds`` ago, for example to check
        a long journal. False after too many such calls."""
        before, self.work = self.work, work_of(self.pid)
        self.silent_checks += 1
        is_busy = self.work.cpu - before.cpu >= max(seconds * BUSY_SHARE, CPU_SECONDS_LEAST)
        has_read = self.work.read - before.read >= READ_BYTES_LEAST
        return seconds > 0 and self.silent_checks <= SILENT_CHECKS_MAX and (is_busy or has_read)


def start_members(
    home: Home,
    commands: Mapping[str, str],
    flags: Sequence[str] = (),
    prefork_server: PreforkServer | None = None,
    seconds: float | None = None,
) -> StartOutcome:
    """Start every member that does not run, and wait. ``commands``: name -> the command that runs the member.

    ``flags``: further options of these commands. ``seconds``: how long a member may make no progress; None:
    ``$HANSE_START_SECONDS``, or 30. A late member goes on starting.
    """
    pids = running_members(home)
    outcome = StartOutcome()
    waiting: dict[int, StartingMember] = {}
    for name, command in commands.items():
        if name in pids:
            continue
        try:
            log_offset = _size(home.member(name) / LOG)
            reader, pids[name] = _start_one(home, command, name, flags, prefork_server)
        except OSError as error:
            outcome.gone[name] = _reason(error)
            continue
        waiting[reader] = StartingMember(name, pids[name], log_offset)
        save_pids(home, pids)  # at once: if this process is killed now, 'hanse down' still finds the member
    await_members(home, waiting, outcome, start_timeout() if seconds is None else seconds, _show)
    if outcome.gone:
        save_pids(home, {name: pid for name, pid in pids.items() if name not in outcome.gone})
    return outcome


def await_members(
    home: Home, waiting: Mapping[int, StartingMember], outcome: StartOutcome, seconds: float, show: ShowLine
) -> None:
    """Wait until every member is ready, gone, or without progress for ``seconds``. Close all pipes."""
    left = dict(waiting)
    while left:
        now = time.monotonic()
        for reader, member in list(left.items()):
            if now - member.progress_at >= seconds and not select.select([reader], [], [], 0)[0]:
                if member.has_worked(seconds):
                    member.progress_at = now
                    show(f"{member.name} is starting: it is working, but has reported no progress")
                    continue
                outcome.late.append(member.name)
                os.close(reader)
                del left[reader]
        if not left:
            return
        next_end = min(member.progress_at for member in left.values()) + seconds
        readable, _, _ = select.select(list(left), [], [], max(0.0, next_end - now))
        for reader in readable:
            if _on_output(home, left[reader], os.read(reader, READ_BYTES_MAX), outcome, show):
                os.close(reader)
                del left[reader]


def _on_output(
    home: Home, member: StartingMember, data: bytes, outcome: StartOutcome, show: ShowLine
) -> bool:
    """Process a member's report; True if it was the last. ``data``: empty when the member has closed its
    end."""
    if not data:
        if is_member(home, member.name, member.pid):  # only a ready member closes its end and goes on
            outcome.ready.append(member.name)
        else:
            outcome.gone[member.name] = last_log_line(home, member.name, member.log_offset)
        return True
    member.progress_at, member.silent_checks = time.monotonic(), 0
    *lines, member.partial_line = (member.partial_line + data.decode("ascii", "replace")).split("\n")
    if READY_WORD in lines:
        outcome.ready.append(member.name)
        return True
    if lines and member.progress_at - member.shown_at >= PROGRESS_SECONDS:
        member.shown_at = member.progress_at
        show(f"{member.name} is starting: {lines[-1]} records")
    return False


def start_timeout() -> float:
    """Return how long a member may make no progress, in seconds."""
    try:
        return float(os.environ.get(START_SECONDS_VARIABLE) or START_SECONDS_MAX)
    except ValueError:
        raise click.UsageError(f"${START_SECONDS_VARIABLE} must be a number of seconds, such as 60") from None


def work_of(pid: int) -> ProcessWork:
    """Return the work of a process so far; none if it is gone."""
    process = Path(f"/proc/{pid}")
    cpu, read = 0.0, 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = (process / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        cpu = (int(words[_USER_TICKS]) + int(words[_USER_TICKS + 1])) / os.sysconf("SC_CLK_TCK")
        read = int((process / "io").read_text(encoding="ascii").split()[1])
    return ProcessWork(cpu, read)


def _show(line: str) -> None:
    click.echo(line, err=True)


def _start_one(
    home: Home, command: str, name: str, flags: Sequence[str], prefork_server: PreforkServer | None
) -> tuple[int, int]:
    """Start one member; return the read end of its readiness pipe, and its process id."""
    if prefork_server is not None:
        directory = home.member(name)
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        (directory / LOG).open("ab").close()  # report a problem with the log here, not in the prefork process
        with contextlib.suppress(PreforkError):  # without the prefork server the start only takes longer
            return prefork_server.fork(
                _member_arguments(home, command, name, READY_FD, flags), directory / LOG
            )
    reader, process = start_member(home, command, name, flags)
    return reader, process.pid


def _member_arguments(home: Home, command: str, name: str, ready: str, flags: Sequence[str]) -> list[str]:
    """Return the arguments of ``hanse`` that start a member."""
    return [command, name, "--home", str(home.path), "--ready-fd", ready, *flags]


def daemon_environment() -> dict[str, str]:
    """Return the environment of members: that of this process without the caller's access token."""
    inherited = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    return {**inherited, **SMALL_DAEMON_ENVIRONMENT}


def start_member(
    home: Home, command: str, name: str, flags: Sequence[str] = (), prefix: Sequence[str] = ()
) -> "tuple[int, subprocess.Popen[bytes]]":
    """Start one member in the background; return the read end of its progress pipe, and the process.

    ``prefix``: a program and its arguments that in turn start the member.
    """
    directory = home.member(name)
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    with (directory / LOG).open("ab") as log:
        reader, writer = os.pipe()
        words = _member_arguments(home, command, name, str(writer), flags)
        try:
            process = subprocess.Popen(  # noqa: S603  our own program
                [*prefix, sys.executable, "-m", "hanse", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                start_new_session=True,
                env=daemon_environment(),
            )
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(writer)
    return reader, process


def last_log_line(home: Home, name: str, log_offset: int = 0) -> str:
    """Return the last line of a member's log, if it was written behind this byte."""
    path = home.member(name) / LOG
    try:
        with path.open("rb") as file:
            file.seek(max(log_offset, _size(path) - LOG_BYTES_MAX))
            lines = file.read(LOG_BYTES_MAX).decode("utf-8", "replace").strip().splitlines()
    except OSError as error:
        return f"its log cannot be read: {_reason(error)}"
    if not lines:
        return f"it ended and wrote nothing to {path}"
    with contextlib.suppress(msgspec.DecodeError, TypeError, KeyError):
        return str(msgspec.json.decode(lines[-1])["message"])
    return lines[-1].removeprefix("hanse: ").removeprefix("Error: ")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)
