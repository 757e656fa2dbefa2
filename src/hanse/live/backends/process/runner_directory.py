"""A daemon's hold on its runner's directory: the lock, and the memory that watchdogs read."""

import asyncio
import fcntl
import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final

LOCK_TRIES_MAX: Final = 20
LOCK_SECONDS: Final = 0.05
"""Tries for a directory that another daemon seems to have, and the delay between them."""
GUARD_AT: Final = 40
DEADLINE_FORMAT: Final = Struct("=q")
"""Offset and format of the time in the shared memory at which all attempts end."""
_GUARD_BYTES: Final = 4_096
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


async def lock_directory(directory: Path) -> int:
    """Lock a directory for one daemon, until the lock is closed or the daemon is dead.

    A launcher that a killed daemon was starting holds the lock for a moment more: hence a few tries.
    """
    file = os.open(directory / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    is_locked = False
    try:
        for _ in range(LOCK_TRIES_MAX):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(LOCK_SECONDS)
            else:
                is_locked = True
                return file
    finally:
        if not is_locked:
            os.close(file)
    raise OSError(f"another daemon already serves the tasks in {directory}")


def open_watchdog_memory(path: Path) -> mmap.mmap:
    """Open the watchdog's shared memory. Content from an earlier boot of the machine is void."""
    boot = _BOOT_ID.read_bytes().strip()[:GUARD_AT]
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(file, _GUARD_BYTES)
        memory = mmap.mmap(file, _GUARD_BYTES)
    finally:
        os.close(file)
    if memory[: len(boot)] != boot:
        DEADLINE_FORMAT.pack_into(memory, GUARD_AT, 0)
        memory[: len(boot)] = boot
    return memory
