"""What a daemon takes of its runner's directory: the lock on it, and the memory that watchdogs look at."""

import asyncio
import fcntl
import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final

LOCK_TRIES_MAX: Final = 20
LOCK_SECONDS: Final = 0.05
"""How often to ask for a directory that another daemon seems to have, and the wait between."""
GUARD_AT: Final = 40
DEADLINE: Final = Struct("=q")
"""Where in the shared memory the time is at which everything ends, and its form."""
_GUARD_BYTES: Final = 4_096
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


async def lock_directory(directory: Path) -> int:
    """One daemon a directory: held until it is closed or dead.

    A daemon that was killed while it started a launcher is outlived by that child, which holds the lock for a
    moment more: hence a few tries.
    """
    file = os.open(directory / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    kept = False
    try:
        for _ in range(LOCK_TRIES_MAX):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(LOCK_SECONDS)
            else:
                kept = True
                return file
    finally:
        if not kept:
            os.close(file)
    raise OSError(f"another daemon already serves the tasks in {directory}")


def open_guard(path: Path) -> mmap.mmap:
    """The watchdog's shared memory. What an earlier boot of the machine left there means nothing now."""
    boot = _BOOT_ID.read_bytes().strip()[:GUARD_AT]
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(file, _GUARD_BYTES)
        memory = mmap.mmap(file, _GUARD_BYTES)
    finally:
        os.close(file)
    if memory[: len(boot)] != boot:
        DEADLINE.pack_into(memory, GUARD_AT, 0)
        memory[: len(boot)] = boot
    return memory
