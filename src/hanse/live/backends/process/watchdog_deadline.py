"""Memory that a daemon shares with its watchdogs: the time at which all attempts end."""

import mmap
import os
from pathlib import Path
from struct import Struct
from typing import Final

GUARD_AT: Final = 40


DEADLINE_FORMAT: Final = Struct("=q")
"""Offset and format of the time in the shared memory at which all attempts end."""


_GUARD_BYTES: Final = 4_096


_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


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
