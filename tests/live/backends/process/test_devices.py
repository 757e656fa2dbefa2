"""Real tasks and their devices: what they are told, what they can open, and what survives a restart."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from hanse.core.config import NodeConfig
from hanse.live.backends.process.backend import NO_DEVICE, ProcessBackend
from hanse.live.backends.process.cgroups import choose_limits, with_device_group
from hanse.live.backends.process.sandbox import SandboxMode, namespace_problem
from hanse.model.hardware.devices import Device
from hanse.model.messages import Outcome
from hanse.model.resources import Resources
from tests.live.backends.desk import Desk, launch, read, read_until, task, with_desk
from tests.live.backends.places import shell

ONE = Resources(cpu=500, memory=64 << 20, gpu=1)
NONE = Resources(cpu=500, memory=64 << 20)
MAJOR, MINORS = 1, (3, 5)
"""Device files that every kernel has under other names: null and zero."""
SAY = 'echo "$HANSE_DEVICES|$HANSE_DEVICES_GPU|$CUDA_VISIBLE_DEVICES|$HANSE_GPUS"; '
HOLD = shell(SAY + "exec sleep 3600")


def has_device_group() -> bool:
    limits = with_device_group(choose_limits("auto", Path("/hanse-test")), Path("/hanse-test"))
    return os.geteuid() == 0 and any(base.role == "d" for base in limits.bases)


def files(place: Path) -> tuple[str, str]:
    """Two plain files in the place of devices."""
    paths = (place / "gpu0", place / "gpu1")
    for path in paths:
        if not path.exists():
            path.write_text(path.name)
            path.chmod(0o666)
    return str(paths[0]), str(paths[1])


def device_files(place: Path) -> tuple[str, str]:
    """Two device files."""
    paths = (place / "gpu0", place / "gpu1")
    for path, minor in zip(paths, MINORS, strict=True):
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(MAJOR, minor))
        path.chmod(0o666)
    return str(paths[0]), str(paths[1])


def nodes(paths: tuple[str, ...]) -> tuple[NodeConfig, ...]:
    devices = tuple(Device("gpu", index, (path,)) for index, path in enumerate(paths))
    return (NodeConfig(Resources(cpu=4_000, memory=1 << 30, gpu=len(paths)), devices=devices),)


def backend(place: Path, paths: tuple[str, ...], sandbox: SandboxMode = "none") -> ProcessBackend:
    return ProcessBackend(place / "tasks", "north", nodes(paths), sandbox=sandbox, user="nobody")


def test_each_task_is_told_of_its_own(place: Path) -> None:
    paths = files(place)

    async def story(desk: Desk) -> None:
        for index in range(2):
            desk.start(launch(HOLD, index, size=ONE))
            told = await read_until(desk.backend, b"\n", index)
            assert told.decode() == f"{paths[index]}|{paths[index]}|{index}|1\n"
        assert isinstance(desk.backend, ProcessBackend)
        assert [holder for _, holder in desk.backend.device_uses(0)] == [task(0), task(1)]
        end = await desk.run(launch(HOLD, 2, size=ONE))
        assert (end.outcome, end.note) == (Outcome.UNSTARTED, NO_DEVICE)
        desk.stop(0, grace=0)
        await desk.end_of(0)
        desk.start(launch(HOLD, 3, size=ONE))  # without a wait: a device is free with its attempt's end
        assert (await read_until(desk.backend, b"\n", 3)).startswith(paths[0].encode())
        desk.start(launch(shell(SAY, HANSE_DEVICES_GPU="mine", CUDA_VISIBLE_DEVICES="1"), 4, size=NONE))
        assert (await desk.end_of(4)).outcome is Outcome.SUCCEEDED
        assert await read(desk.backend, 4) == b"|||0\n"
        for index in (1, 3):
            desk.stop(index, grace=0)
            await desk.end_of(index)

    with_desk(lambda: backend(place, paths), story)


def test_another_daemon_knows_whose_they_are(place: Path) -> None:
    paths = files(place)

    async def before(desk: Desk) -> None:
        for index in range(2):
            desk.start(launch(HOLD, index, size=ONE))
            await read_until(desk.backend, b"\n", index)
        desk.stop(0, grace=0)
        await desk.end_of(0)

    async def after(desk: Desk) -> None:
        assert [running.task for running in desk.found.running] == [task(1)]
        desk.start(launch(HOLD, 2, size=ONE))
        assert (await read_until(desk.backend, b"\n", 2)).startswith(paths[0].encode())
        assert (await desk.run(launch(HOLD, 3, size=ONE))).note == NO_DEVICE
        for index in (1, 2):
            desk.stop(index, grace=0)
            await desk.end_of(index)

    with_desk(lambda: backend(place, paths), before)
    with_desk(lambda: backend(place, paths), after)


@pytest.mark.skipif(not has_device_group(), reason="no control groups for devices here")
def test_a_control_group_refuses_the_other_device(place: Path) -> None:
    """Also for tasks that follow one another in the same supervisor and group."""
    paths = device_files(place)
    probe = f'for f in {paths[0]} {paths[1]}; do head -c 0 $f && echo "open $f"; done 2>&1'

    async def story(desk: Desk) -> None:
        for index, size in enumerate((ONE, NONE, ONE, NONE)):
            await desk.run(launch(shell(probe), index, size=size))
            said = (await read(desk.backend, index)).decode()
            opened = [path for path in paths if f"open {path}" in said]
            assert opened == ([paths[0]] if size is ONE else []), said
            assert said.count("Operation not permitted") == 2 - len(opened)
        assert isinstance(desk.backend, ProcessBackend)
        assert not any("can open" in warning for warning in desk.backend.warnings)

    with_desk(lambda: backend(place, paths), story)


@pytest.mark.skipif(shutil.which("bwrap") is None or namespace_problem() is not None, reason="no bubblewrap")
@pytest.mark.parametrize("mode", ["bwrap", "namespace"])
@pytest.mark.parametrize("make", [files, device_files])
def test_a_sandbox_shows_a_task_its_own_device_only(place: Path, mode: SandboxMode, make: object) -> None:
    if make is device_files and os.geteuid() != 0:
        pytest.skip("only root makes device files")
    paths = make(place)  # type: ignore[operator]  # one of the two functions
    probe = f'for f in {paths[0]} {paths[1]}; do head -c 1 $f >/dev/null && echo "open $f"; done'
    probe += f"; chmod 666 {paths[1]}; head -c 1 {paths[1]}"

    async def story(desk: Desk) -> None:
        for index, size in enumerate((ONE, NONE, ONE)):
            await desk.run(launch(shell(probe), index, size=size))
            said = (await read(desk.backend, index)).decode()
            assert said == (f"open {paths[0]}\n" if size is ONE else "")

    with_desk(lambda: backend(place, paths, mode), story)


def test_plain_files_without_a_sandbox_are_said_to_be_open(place: Path) -> None:
    paths = files(place)

    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        assert any("can open those of others" in warning for warning in desk.backend.warnings)

    with_desk(lambda: backend(place, paths), story)


def test_a_device_that_is_missing_is_withheld(place: Path) -> None:
    paths = (*files(place)[:1], str(place / "nowhere"))

    async def story(desk: Desk) -> None:
        assert desk.room == {0: Resources(gpu=1)}
        desk.start(launch(HOLD, 0, size=ONE))
        assert (await read_until(desk.backend, b"\n")).startswith(paths[0].encode())
        assert (await desk.run(launch(HOLD, 1, size=ONE))).outcome is Outcome.UNSTARTED
        desk.stop(grace=0)
        await desk.end_of()

    with_desk(lambda: backend(place, paths), story)
