"""Tasks that fill the disk: who is ended, who is not, and what is said."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.live.backends.disk_watch import DiskWatch, tree_bytes, unlinked_bytes
from hanse.live.backends.process import ProcessBackend
from hanse.model.ids import TaskId
from hanse.model.messages import Outcome
from tests.live.backends.desk import HOUR, Desk, launch, now, read_until, task, with_desk
from tests.live.backends.places import NODES, shell

KEY = (TaskId(5), 1)
DISK_MIB = 64
KEPT_MIB = DISK_MIB // 10
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")
FULL = "dd if=/dev/zero of=big bs=1M count=80 2>/dev/null"
"""Fills the disk, and goes on when it is full."""


@pytest.fixture
def small(place: Path) -> Iterator[Path]:
    """A small disk for tasks."""
    options = f"size={DISK_MIB}m,mode=0711"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def free_mib(place: Path) -> int:
    facts = os.statvfs(place)
    return facts.f_bavail * facts.f_frsize >> 20


@ROOT_ONLY
def test_the_task_that_fills_the_disk_is_ended_and_its_neighbour_is_not(small: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(
            launch(shell("dd if=/dev/zero of=little bs=1M count=2 2>/dev/null; echo done; sleep 1000"), 0)
        )
        await read_until(desk.backend, b"done")
        desk.start(launch(shell(f"{FULL}; sleep 1000"), 1))
        end = await desk.end_of(1)
        assert end.outcome is Outcome.FAILED
        assert end.note.startswith("the disk was nearly full, and its files took the most")
        desk.forget(1)
        assert (task(0), 1) not in desk.ends
        desk.stop(0, 0)
        assert (await desk.end_of(0)).outcome is Outcome.CANCELLED

    with_desk(lambda: ProcessBackend(small, "north", NODES, disk_quota=1 << 30), story)


@ROOT_ONLY
def test_a_file_without_a_name_counts_too(small: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(shell("sleep 1000"), 0))
        await desk.start_of(0)
        desk.start(launch(shell(f"exec 3>big; rm big; {FULL.replace('of=big', '')} >&3; sleep 1000"), 1))
        end = await desk.end_of(1)
        assert end.outcome is Outcome.FAILED
        assert "its files took the most" in end.note
        assert free_mib(small) > KEPT_MIB
        desk.stop(0, 0)
        await desk.end_of(0)

    with_desk(lambda: ProcessBackend(small, "north", NODES, disk_quota=1 << 30), story)


@ROOT_ONLY
def test_a_quota_holds_though_there_is_room(small: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(shell("dd if=/dev/zero of=x bs=1M count=9 2>/dev/null; sleep 1000"), 0))
        end = await desk.end_of(0)
        assert (end.outcome, end.note) == (
            Outcome.FAILED,
            f"its files took {9 << 20} bytes, and {8 << 20} is the most for one task",
        )

    with_desk(lambda: ProcessBackend(small, "north", NODES, disk_quota=8 << 20), story)


@ROOT_ONLY
def test_nobody_is_ended_for_what_somebody_else_takes(small: Path) -> None:
    """A disk that is full of other files: no task's end would help."""
    (small / "work" / "5.1").mkdir(parents=True)
    (small / "work" / "5.1" / "file").write_bytes(bytes(1 << 19))
    (small / "ballast").write_bytes(bytes((DISK_MIB - 2) << 20))
    watch = DiskWatch(small)
    assert watch.look([KEY]) == []
    (small / "work" / "5.1" / "more").write_bytes(bytes(1 << 19))
    assert [offender.key for offender in watch.look([KEY])] == [KEY]
    assert watch.look([]) == []


def test_links_are_not_followed_and_what_is_not_there_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_bytes(bytes(1 << 20))
    (tmp_path / "near" / "below").mkdir(parents=True)
    (tmp_path / "near" / "link").symlink_to(tmp_path / "far")
    assert tree_bytes(tmp_path / "near") < 1 << 16
    (tmp_path / "near" / "below" / "file").write_bytes(bytes(1 << 20))
    assert 1 << 20 <= tree_bytes(tmp_path / "near") < (1 << 20) + (1 << 16)
    assert tree_bytes(tmp_path / "nowhere") == 0
    assert unlinked_bytes(tmp_path, [KEY]) == {}
