"""The processes of a home's members: which of them run, by ``pids.json``, and how they are stopped.

Nothing here needs the league's file: members can be stopped when it is damaged.
"""

import contextlib
import os
import select
import signal
import time
from pathlib import Path
from typing import Final

import msgspec

from hanse.live.home import Home

PIDS: Final = "pids.json"
STOP_SECONDS_MAX: Final = 15.0


def stop_members(home: Home, names: list[str]) -> int:
    """Stop members in good order, and wait for their end; how many there were."""
    pids = running_members(home)
    watched: dict[int, int] = {}
    for name in names:
        pid = pids.pop(name)
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            watched[descriptor] = pid
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS_MAX
    left = dict(watched)
    while left:
        readable, _, _ = select.select(list(left), [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            for pid in left.values():
                os.kill(pid, signal.SIGKILL)
            break
        for descriptor in readable:
            del left[descriptor]
    for descriptor in watched:
        os.close(descriptor)
    save_pids(home, pids)
    return len(watched)


def kill_member(home: Home, name: str) -> None:
    """End a member as a crash would."""
    os.kill(running_members(home)[name], signal.SIGKILL)


def running_members(home: Home) -> dict[str, int]:
    """The members of a home that run, by name. A number that another program has now is not one of them."""
    try:
        saved = msgspec.json.decode((home.path / PIDS).read_bytes(), type=dict[str, int])
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return {name: pid for name, pid in saved.items() if is_member(home, name, pid)}


def is_member(home: Home, name: str, pid: int) -> bool:
    """Whether a process is this member of the home, and not over yet."""
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
    """Keep which members run."""
    part = home.path / f"{PIDS}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(pids))
    part.replace(home.path / PIDS)
