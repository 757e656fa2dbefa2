"""Lock of a runner's directory, so that one daemon at a time uses it."""

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Final

LOCK_TRIES_MAX: Final = 20
LOCK_SECONDS: Final = 0.05
"""Tries for a directory that another daemon seems to have, and the delay between them."""


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
