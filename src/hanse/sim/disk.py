"""Disk of a simulated process: settings of its journal and snapshots, and copies of what it holds."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from hanse.core.machine import Machine
from hanse.model.events import Event


class Durability(msgspec.Struct, frozen=True):
    """Settings of journal and snapshots. Times in microseconds."""

    commit_min: int = 0
    commit_max: int = 0
    """Range of the time that a write to the journal takes; 0: none."""
    snapshot_every: int = 500
    """Events between snapshots."""
    check_every: int = 200
    """Events between two ``machine.check()``."""


class DiskCopy(NamedTuple):
    """Copy of a process's disk; later changes of the disk do not affect it."""

    snapshot: bytes | None
    journal: tuple[Event, ...]
    epoch: int
    factory: Callable[[], Machine] | None = None
    """Factory of a machine with the settings of that journal; None: with the newest settings."""
