"""Starting members in the background, and waiting for them.

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

from hanse.cli.embedded.member_processes import is_member, running_members, save_pids
from hanse.cli.embedded.prefork import READY, Nursery, NurseryError
from hanse.client.access_token import TOKEN_VARIABLE
from hanse.live.readiness import READY as READY_WORD
from hanse.security.home import Home

START_SECONDS_MAX: Final = 30.0
"""Time a member may make no progress before waiting for it ends."""
PATIENCE_VARIABLE: Final = "HANSE_START_SECONDS"
"""Environment variable that sets a longer time, for a slow disk."""
SHOWN_SECONDS: Final = 2.0
"""Least time between two progress lines of a member."""
TOLD_BYTES_MAX: Final = 4_096
"""Bytes of a member's progress read at once."""
LOG_BYTES_MAX: Final = 64 << 10
"""Bytes at the end of a member's log searched for its last line."""
BUSY_SHARE: Final = 0.02
"""Share of a core above which a silent member counts as working; a waiting one uses less."""
CPU_SECONDS_LEAST: Final = 0.02
READ_BYTES_LEAST: Final = 1 << 20
"""Bytes read that count as work, too."""
SILENCES_MAX: Final = 20
"""Waiting periods in a row in which a working member may report nothing."""
FRUGAL: Final = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
"""Environment that limits a daemon's memory: it has few threads, and its arrays are short."""
LOG: Final = "log.jsonl"
_USER_TICKS: Final = 11
"""Field of ``/proc/PID/stat``, counted behind the name, with the CPU time of a process in user mode; the next
field holds the kernel's."""

Show = Callable[[str], None]


class Outcome(msgspec.Struct):
    """Result of starting members, by name."""

    ready: list[str] = []
    late: list[str] = []
    """Members that run but are not ready yet; they are left alone."""
    gone: dict[str, str] = {}
    """Members that do not run, with the reason."""


class Work(msgspec.Struct, frozen=True):
    """Work of a process since its start, as the kernel counts it."""

    cpu: float = 0.0
    """Seconds."""
    read: int = 0
    """Bytes."""


class StartingMember:
    """Member whose start is awaited."""

    def __init__(self, name: str, pid: int, log_from: int) -> None:
        self.name = name
        self.pid = pid
        self.log_from = log_from
        """Size of the log in bytes before this start."""
        self.progress_at = time.monotonic()
        self.shown_at = self.progress_at
        self.rest = ""
        """Beginning of a line whose end has not been read yet."""
        self.work = work_of(pid)
        self.silences = 0
        """Waiting periods since the last report."""

    def has_worked(self, seconds: float) -> bool:
        """True if the member has computed or read since the last call, ``seconds`` ago, for example to check
        a long journal. False after too many such calls."""
        before, self.work = self.work, work_of(self.pid)
        self.silences += 1
        is_busy = self.work.cpu - before.cpu >= max(seconds * BUSY_SHARE, CPU_SECONDS_LEAST)
        has_read = self.work.read - before.read >= READ_BYTES_LEAST
        return seconds > 0 and self.silences <= SILENCES_MAX and (is_busy or has_read)


def start_members(
    home: Home,
    verbs: Mapping[str, str],
    flags: Sequence[str] = (),
    nursery: Nursery | None = None,
    seconds: float | None = None,
) -> Outcome:
    """Start every member that does not run, and wait. ``commands``: name -> the command that runs the member.

    ``flags``: further options of these commands. ``seconds``: how long a member may make no progress; None:
    ``$HANSE_START_SECONDS``, or 30. A late member goes on starting.
    """
    pids = running_members(home)
    outcome = Outcome()
    waiting: dict[int, StartingMember] = {}
    for name, verb in verbs.items():
        if name in pids:
            continue
        try:
            log_from = _size(home.member(name) / LOG)
            reader, pids[name] = _start_one(home, verb, name, flags, nursery)
        except OSError as error:
            outcome.gone[name] = _reason(error)
            continue
        waiting[reader] = StartingMember(name, pids[name], log_from)
        save_pids(home, pids)  # at once: if this process is killed now, 'hanse down' still finds the member
    await_members(home, waiting, outcome, patience() if seconds is None else seconds, _show)
    if outcome.gone:
        save_pids(home, {name: pid for name, pid in pids.items() if name not in outcome.gone})
    return outcome


def await_members(
    home: Home, waiting: Mapping[int, StartingMember], outcome: Outcome, seconds: float, show: Show
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
            if _heard(home, left[reader], os.read(reader, TOLD_BYTES_MAX), outcome, show):
                os.close(reader)
                del left[reader]


def _heard(home: Home, member: StartingMember, data: bytes, outcome: Outcome, show: Show) -> bool:
    """Process a member's report; True if it was the last. ``data``: empty when the member has closed its
    end."""
    if not data:
        if is_member(home, member.name, member.pid):  # only a ready member closes its end and goes on
            outcome.ready.append(member.name)
        else:
            outcome.gone[member.name] = last_words(home, member.name, member.log_from)
        return True
    member.progress_at, member.silences = time.monotonic(), 0
    *lines, member.rest = (member.rest + data.decode("ascii", "replace")).split("\n")
    if READY_WORD in lines:
        outcome.ready.append(member.name)
        return True
    if lines and member.progress_at - member.shown_at >= SHOWN_SECONDS:
        member.shown_at = member.progress_at
        show(f"{member.name} is starting: {lines[-1]} records")
    return False


def patience() -> float:
    """Return how long a member may make no progress, in seconds."""
    try:
        return float(os.environ.get(PATIENCE_VARIABLE) or START_SECONDS_MAX)
    except ValueError:
        raise click.UsageError(f"${PATIENCE_VARIABLE} must be a number of seconds, such as 60") from None


def work_of(pid: int) -> Work:
    """Return the work of a process so far; none if it is gone."""
    process = Path(f"/proc/{pid}")
    cpu, read = 0.0, 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = (process / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        cpu = (int(words[_USER_TICKS]) + int(words[_USER_TICKS + 1])) / os.sysconf("SC_CLK_TCK")
        read = int((process / "io").read_text(encoding="ascii").split()[1])
    return Work(cpu, read)


def _show(line: str) -> None:
    click.echo(line, err=True)


def _start_one(
    home: Home, verb: str, name: str, flags: Sequence[str], nursery: Nursery | None
) -> tuple[int, int]:
    """Start one member; return the read end of its readiness pipe, and its process id."""
    if nursery is not None:
        directory = home.member(name)
        directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        (directory / LOG).open("ab").close()  # report a problem with the log here, not in the prefork process
        with contextlib.suppress(NurseryError):  # without the prefork server the start only takes longer
            return nursery.fork(_words(home, verb, name, READY, flags), directory / LOG)
    reader, process = start_member(home, verb, name, flags)
    return reader, process.pid


def _words(home: Home, verb: str, name: str, ready: str, flags: Sequence[str]) -> list[str]:
    """Return the arguments of ``hanse`` that start a member."""
    return [verb, name, "--home", str(home.path), "--ready-fd", ready, *flags]


def daemon_environment() -> dict[str, str]:
    """Return the environment of members: that of this process without the caller's access token."""
    given = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    return {**given, **FRUGAL}


def start_member(
    home: Home, verb: str, name: str, flags: Sequence[str] = (), prefix: Sequence[str] = ()
) -> "tuple[int, subprocess.Popen[bytes]]":
    """Start one member in the background; return the read end of its progress pipe, and the process.

    ``prefix``: a program and its arguments that in turn start the member.
    """
    directory = home.member(name)
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    with (directory / LOG).open("ab") as log:
        reader, writer = os.pipe()
        words = _words(home, verb, name, str(writer), flags)
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


def last_words(home: Home, name: str, log_from: int = 0) -> str:
    """Return the last line of a member's log, if it was written behind this byte."""
    path = home.member(name) / LOG
    try:
        with path.open("rb") as file:
            file.seek(max(log_from, _size(path) - LOG_BYTES_MAX))
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
