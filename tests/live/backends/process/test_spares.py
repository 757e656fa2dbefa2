"""Records and working directories that are used again: nothing of an earlier attempt is left in them."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from hanse.live.backends.process.backend import ProcessBackend
from hanse.model.messages import Outcome
from tests.live.backends.desk import Desk, launch, read, task, with_desk
from tests.live.backends.places import plain_backend, run, shell, wait_all_gone


async def forgotten(desk: Desk, index: int, script: str) -> None:
    """Run and forget an attempt."""
    await desk.run(launch(shell(script), index))
    desk.forget(index)


async def three_at_once(desk: Desk) -> None:
    """So many attempts, ended and not forgotten."""
    for index in range(3):
        desk.start(launch(run("true"), index))
    for index in range(3):
        await desk.end_of(index)


def kept(place: Path, names: str) -> list[Path]:
    """Records and directories of these names."""
    return [path for folder in ("records", "work") for path in (place / folder).glob(names)]


@pytest.mark.parametrize(
    "left",
    ["", "touch .hidden", "mkdir -p deep/er", "chmod 0 .", "chmod 777 ."],
)
def test_a_directory_is_as_good_as_new(place: Path, left: str) -> None:
    async def story(desk: Desk) -> None:
        for index in range(4):
            await forgotten(desk, index, left)
        await desk.run(launch(shell("ls -A; stat -c %a .; basename $PWD"), 9))
        assert (await read(desk.backend, 9)).decode().split() == ["700", f"{task(9)}.1"]

    with_desk(lambda: plain_backend(place), story)


def test_a_directory_with_attributes_is_not_used_again(place: Path) -> None:
    """They may say who may read what is made in it."""
    try:
        os.setxattr(place, "user.mark", b"x")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")

    async def story(desk: Desk) -> None:
        await three_at_once(desk)
        for index in range(3):
            os.setxattr(place / "work" / f"{task(index)}.1", "user.mark", b"x")
            desk.forget(index)
        await desk.run(launch(run("true"), 3))
        assert os.listxattr(place / "work" / f"{task(3)}.1") == []

    with_desk(lambda: plain_backend(place), story)


def test_records_and_directories_are_used_again_and_go_with_the_launcher(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await three_at_once(desk)
        before = {path.stat().st_ino for path in kept(place, "*.1")}
        for index in range(3):
            desk.forget(index)
        await desk.run(launch(run("true"), 3))
        assert {path.stat().st_ino for path in kept(place, "*.1")} < before
        assert len(kept(place, "spare.*")) == 4

    with_desk(lambda: plain_backend(place), story)
    wait_all_gone(place)
    assert kept(place, "spare.*") == []


def test_spares_that_a_killed_launcher_left_are_removed(place: Path) -> None:
    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        await three_at_once(desk)
        for index in range(3):
            desk.forget(index)
        await desk.run(launch(run("true"), 3))
        old = kept(place, "spare.*")
        os.kill(desk.backend.launcher_pid, signal.SIGKILL)
        await desk.run(launch(run("true"), 4))
        assert old != []
        assert not any(path.exists() for path in old)

    with_desk(lambda: plain_backend(place), story)


def test_a_record_with_what_another_attempt_left_in_it_is_a_lost_attempt(place: Path) -> None:
    """As a crash of the machine may leave it: the name is on disk, what was written into it is not."""

    async def before(desk: Desk) -> None:
        await desk.run(launch(run("true"), 0))

    async def after(desk: Desk) -> None:
        assert {end.task: end.outcome for end in desk.found.ended} == {
            task(0): Outcome.SUCCEEDED,
            task(1): Outcome.LOST,
        }

    with_desk(lambda: plain_backend(place), before)
    wait_all_gone(place)
    shutil.copy(place / "records" / f"{task(0)}.1", place / "records" / f"{task(1)}.1")
    with_desk(lambda: plain_backend(place), after)


def test_that_an_attempt_wrote_nothing_is_known_after_a_restart(place: Path) -> None:
    async def before(desk: Desk) -> None:
        await forgotten(desk, 0, "")
        await forgotten(desk, 1, "echo x")

    async def after(desk: Desk) -> None:
        assert await read(desk.backend, 0) == b""
        assert await read(desk.backend, 1) == b"x\n"
        with pytest.raises(FileNotFoundError):
            await read(desk.backend, 2)

    with_desk(lambda: plain_backend(place), before)
    wait_all_gone(place)
    with_desk(lambda: plain_backend(place), after)
