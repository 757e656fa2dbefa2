"""Running members of a home: their processes are found, and stopped.

Running members are found by ``pids.json`` and by their command lines: the process that started them may have
been killed before it wrote their ids. Nothing here needs the league file, so members can be stopped when it
is damaged.
"""

import os
import select
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from hanse.security.home import Home

PIDS: Final = "pids.json"
STOP_SECONDS_MAX: Final = 15.0
"""Time a member has to end after SIGTERM."""
KILL_SECONDS_MAX: Final = 15.0
"""Time the kernel has to end a member after SIGKILL."""
_VERBS: Final = (b"broker", b"warden", b"runner")
_PROGRAM: Final = [b"-m", b"hanse"]


def stop_members(home: Home, names: list[str]) -> int:
    """Stop members with SIGTERM, wait for their end, and return how many there were. A member that does not
    end is killed."""
    pids = running_members(home)
    watched: dict[int, str] = {}
    for name in names:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pids.pop(name))
            watched[descriptor] = name
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    remaining = _await_exits(list(watched), STOP_SECONDS_MAX)
    for descriptor in remaining:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    _await_exits(remaining, KILL_SECONDS_MAX)
    for descriptor in watched:
        os.close(descriptor)
    save_pids(home, pids)
    return len(watched)


def _await_exits(descriptors: list[int], seconds: float) -> list[int]:
    """Wait until these processes have ended, for at most ``seconds``; return those that have not."""
    deadline = time.monotonic() + seconds
    remaining = descriptors
    while remaining:
        readable, _, _ = select.select(remaining, [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            break
        remaining = [descriptor for descriptor in remaining if descriptor not in readable]
    return remaining


def kill_member(home: Home, name: str) -> None:
    """Kill a member, as a crash would."""
    os.kill(running_members(home)[name], signal.SIGKILL)


def running_members(home: Home) -> dict[str, int]:
    """Return the process ids of the running members of a home, by name; reused process ids are left out."""
    saved: Mapping[str, int] = {}
    with suppress(FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        saved = msgspec.json.decode((home.path / PIDS).read_bytes(), type=dict[str, int])
    known = {name: pid for name, pid in saved.items() if is_member(home, name, pid)}
    return {**_find_members(home), **known}


def _find_members(home: Home) -> dict[str, int]:
    """Find the members of a home that ``hanse up`` has started, by the command lines of all processes of the
    home's owner and of this user."""
    try:
        owners = (os.geteuid(), home.path.stat().st_uid)
    except FileNotFoundError:
        return {}
    pids = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):  # the process has ended, or may not be read
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[1:3] != _PROGRAM or len(words) < 8 or words[3] not in _VERBS:
                continue
            name = os.fsdecode(words[4])
            is_started_by_up = words[5:8] == [b"--home", os.fsencode(home.path), b"--ready-fd"]
            if (
                is_started_by_up
                and process.stat().st_uid in owners
                and is_member(home, name, int(process.name))
            ):
                pids[name] = int(process.name)
    return pids


def is_member(home: Home, name: str, pid: int) -> bool:
    """True if a process is this member of the home and has not ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        state = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="ascii", errors="replace")
            .rpartition(")")[2]
            .split()[0]
        )
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" and name.encode() in words and str(home.path).encode() in words


def save_pids(home: Home, pids: dict[str, int]) -> None:
    """Write the ids of running members. If nothing can be written, members are found by command line."""
    part = home.path / f"{PIDS}.part"
    with suppress(OSError):
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(pids))
        part.replace(home.path / PIDS)
