"""Tasks that fill the disk: who is ended, who is not, and what is said."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanse.live.backends.interface import OutputDroppedError, Stream
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.disk_monitor import (
    DiskMonitor,
    DiskUsage,
    Eviction,
    tree_usage,
    unlinked_bytes,
)
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


def judged(watch: DiskMonitor, running: list[tuple[TaskId, int]]) -> list[Eviction]:
    return watch.find_evictions(running, watch.measure_shortage())


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
            f"its files took {9 << 20} bytes, and the limit of a task is {8 << 20}",
        )

    with_desk(lambda: ProcessBackend(small, "north", NODES, disk_quota=8 << 20), story)


@ROOT_ONLY
def test_nobody_is_ended_for_what_somebody_else_takes(small: Path) -> None:
    """A disk that is full of other files: no task's end would help."""
    (small / "work" / "5.1").mkdir(parents=True)
    (small / "work" / "5.1" / "file").write_bytes(bytes(1 << 19))
    (small / "ballast").write_bytes(bytes((DISK_MIB - 2) << 20))
    watch = DiskMonitor(small)
    assert judged(watch, [KEY]) == []
    (small / "work" / "5.1" / "more").write_bytes(bytes(1 << 19))
    assert [offender.key for offender in judged(watch, [KEY])] == [KEY]
    assert judged(watch, []) == []


def test_links_are_not_followed_and_what_is_not_there_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_bytes(bytes(1 << 20))
    (tmp_path / "near" / "below").mkdir(parents=True)
    (tmp_path / "near" / "link").symlink_to(tmp_path / "far")
    assert tree_usage(tmp_path / "near").bytes < 1 << 16
    (tmp_path / "near" / "below" / "file").write_bytes(bytes(1 << 20))
    assert 1 << 20 <= tree_usage(tmp_path / "near").bytes < (1 << 20) + (1 << 16)
    assert tree_usage(tmp_path / "near").files == 3
    assert tree_usage(tmp_path / "near", files_max=1).files == 2, "one more than the most: too many"
    assert tree_usage(tmp_path / "nowhere") == DiskUsage(0, 0)
    assert unlinked_bytes(tmp_path, [KEY]) == {}


@ROOT_ONLY
def test_output_counts_as_a_file_of_the_task(small: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(shell("head -c 9000000 /dev/zero; sleep 1000"), 0))
        end = await desk.end_of(0)
        assert end.outcome is Outcome.FAILED
        assert end.note.startswith("its files took 9")

    with_desk(lambda: ProcessBackend(small, "north", NODES, disk_quota=8 << 20), story)


@ROOT_ONLY
def test_old_output_is_dropped_when_the_disk_is_crowded_and_whoever_asks_is_told(small: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(shell("head -c 3000000 /dev/zero"), 0))
        await desk.end_of(0)
        desk.forget(0)
        desk.start(launch(shell("head -c 30000000 /dev/zero"), 1))
        await desk.end_of(1)  # not forgotten: its broker has not taken the end yet
        assert (small / "output" / f"{task(0)}.1.stdout").exists()
        (small / "ballast").write_bytes(bytes(free_mib(small) - 1 << 20))
        while free_mib(small) < KEPT_MIB:
            await asyncio.sleep(0.05)  # the outside world: there is nothing to await
        assert not list((small / "output").glob("*.stdout"))
        for number in (0, 1):
            with pytest.raises(OutputDroppedError):
                await anext(desk.backend.output(task(number), 1, Stream.STDOUT))

    with_desk(lambda: ProcessBackend(small, "north", NODES), story)


@ROOT_ONLY
def test_kept_output_is_a_share_of_a_small_disk_at_most(small: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        for number in range(3):
            desk.start(launch(shell("head -c 5000000 /dev/zero"), number))
            await desk.end_of(number)
            desk.forget(number)
        while len(list((small / "output").glob("*.stdout"))) != 1:
            await asyncio.sleep(0.05)  # the outside world: there is nothing to await
        assert (small / "output" / f"{task(2)}.1.stdout").exists(), "the oldest go first"

    with_desk(lambda: ProcessBackend(small, "north", NODES), story)


@pytest.fixture
def few(place: Path) -> Iterator[Path]:
    """A disk with few inodes."""
    options = "size=64m,nr_inodes=2000,mode=0711"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


MANY = "i=0; while [ $i -lt {0} ]; do true > f$i || break; i=$((i+1)); done; sleep 1000"


@ROOT_ONLY
def test_a_quota_of_files_holds(few: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(shell(MANY.format(300)), 0))
        end = await desk.end_of(0)
        assert (end.outcome, end.note) == (
            Outcome.FAILED,
            "it made more files than 200, the limit of a task",
        )

    with_desk(lambda: ProcessBackend(few, "north", NODES, files_quota=200), story)


@ROOT_ONLY
def test_the_task_with_most_files_is_ended_when_inodes_run_short(few: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        desk.start(launch(shell("touch mine; echo done; sleep 1000"), 0))
        await read_until(desk.backend, b"done")
        desk.start(launch(shell(MANY.format(3000)), 1))
        end = await desk.end_of(1)
        assert end.outcome is Outcome.FAILED
        assert end.note.startswith("the disk had nearly no inodes left, and it had the most files")
        assert (task(0), 1) not in desk.ends
        desk.stop(0, 0)
        await desk.end_of(0)

    with_desk(lambda: ProcessBackend(few, "north", NODES, files_quota=5000), story)


@ROOT_ONLY
def test_a_start_without_room_is_no_loss_and_nodes_are_withheld_meanwhile(few: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.guard(now() + HOUR)
        ballast = few / "ballast"
        ballast.mkdir()
        for number in range(os.statvfs(few).f_favail):
            (ballast / str(number)).touch()
        desk.start(launch(shell("true"), 0))
        end = await desk.end_of(0)
        assert (end.outcome, "No space left on device" in end.note) == (Outcome.UNSTARTED, True)
        while not desk.backend.closed_nodes():
            await asyncio.sleep(0.05)  # the outside world: there is nothing to await
        assert desk.backend.closed_nodes()[0] == "the disk of its tasks is nearly full"
        shutil.rmtree(ballast)
        while desk.backend.closed_nodes():
            await asyncio.sleep(0.05)  # the outside world: there is nothing to await
        desk.forget(0)
        desk.start(launch(shell("true"), 1))
        assert (await desk.end_of(1)).outcome is Outcome.SUCCEEDED

    with_desk(lambda: ProcessBackend(few, "north", NODES), story)
