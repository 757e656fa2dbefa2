"""What tasks print: kept within bounds, read while it grows, dropped by age."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from hanse.live.backends.interface import Stream
from hanse.live.backends.process.backend import ProcessBackend
from hanse.live.backends.process.kept_outputs import KeptOutputs
from hanse.live.backends.process.output_reader import FOLLOWERS_MAX
from hanse.model.ids import TaskId
from hanse.model.messages import Outcome
from tests.live.backends.desk import Desk, launch, read, read_until, task, with_desk
from tests.live.backends.places import NODES, shell


def inotify_instances() -> int:
    count = 0
    for file in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # the one that listed them is closed
            count += "inotify" in str(file.readlink())
    return count


class SmallKeeper(ProcessBackend):
    """Keeps the output of two forgotten attempts."""

    kept_count_max = 2


def test_both_outputs_are_kept_apart(place: Path) -> None:
    async def story(desk: Desk) -> None:
        await desk.run(launch(shell("echo out; echo err >&2")))
        assert await read(desk.backend) == b"out\n"
        assert await read(desk.backend, stream=Stream.STDERR) == b"err\n"

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


def test_output_is_cut_at_its_limit_and_the_task_goes_on(place: Path) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell("head -c 1000000 /dev/zero | tr '\\0' x; echo e >&2; exit 3")))
        assert (end.outcome, end.exit_code, end.note) == (Outcome.FAILED, 3, "stdout was cut")
        text = await read(desk.backend)
        assert text.startswith(b"x" * 1_000 + b"\n[hanse: the output limit of 1000 bytes is reached")
        assert len(text) < 1_200
        assert await read(desk.backend, stream=Stream.STDERR) == b"e\n"

    with_desk(lambda: ProcessBackend(place, "north", NODES, output_bytes_max=1_000), story)


def test_output_of_exactly_the_limit_is_whole(place: Path) -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(shell("head -c 1000 /dev/zero")))
        assert end.note == ""
        assert await read(desk.backend) == bytes(1_000)

    with_desk(lambda: ProcessBackend(place, "north", NODES, output_bytes_max=1_000), story)


def test_much_output_arrives_whole(place: Path) -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(shell("i=0; while [ $i -lt 160 ]; do head -c 100000 /dev/zero; i=$((i+1)); done")))
        pieces = desk.backend.output(task(0), 1, Stream.STDOUT, follow=True)
        assert sum([len(piece) async for piece in pieces]) == 16_000_000
        assert (await desk.end_of()).note == ""

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


def test_an_output_is_followed_as_it_grows(place: Path) -> None:
    """The task waits for us between its lines: nothing is read late."""
    script = 'cd "$PLACE"; mkfifo go-1 go-2; echo one; read x < go-1; echo two; read x < go-2; echo three'
    (place / "open").mkdir()
    (place / "open").chmod(0o777)

    async def story(desk: Desk) -> None:
        desk.start(launch(shell(script, PLACE=str(place / "open"))))
        assert await read_until(desk.backend, b"one\n") == b"one\n"
        (place / "open" / "go-1").write_text("\n")
        assert await read_until(desk.backend, b"two\n") == b"one\ntwo\n"
        (place / "open" / "go-2").write_text("\n")
        rest = desk.backend.output(task(0), 1, Stream.STDOUT, 4, follow=True)
        assert b"".join([piece async for piece in rest]) == b"two\nthree\n"

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


def test_following_is_bounded_and_ends_with_the_attempt(place: Path) -> None:
    async def follow(desk: Desk) -> bytes:
        return b"".join(
            [piece async for piece in desk.backend.output(task(0), 1, Stream.STDOUT, follow=True)]
        )

    async def story(desk: Desk) -> None:
        desk.start(launch(shell("echo set; exec sleep 3600")))
        await read_until(desk.backend, b"set")
        followers = [asyncio.ensure_future(follow(desk)) for _ in range(FOLLOWERS_MAX)]
        await asyncio.sleep(0)  # each takes its place
        assert inotify_instances() == 1  # for all of them: a user has few
        with pytest.raises(OSError, match="followed already"):
            await follow(desk)
        desk.stop(grace=0)
        assert set(await asyncio.gather(*followers)) == {b"set\n"}
        assert inotify_instances() == 0

    with_desk(lambda: ProcessBackend(place, "north", NODES), story)


def test_output_of_forgotten_attempts_is_kept_for_a_while(place: Path) -> None:
    async def story(desk: Desk) -> None:
        for index in range(4):
            await desk.run(launch(shell(f"echo {index}"), index))
            desk.forget(index)
        for index in (0, 1):
            with pytest.raises(FileNotFoundError):
                await read(desk.backend, index)
        assert await read(desk.backend, 3) == b"3\n"

    async def again(desk: Desk) -> None:
        assert await read(desk.backend, 2) == b"2\n"
        assert await read(desk.backend, 3) == b"3\n"
        assert len(list((place / "output").iterdir())) == 2

    with_desk(lambda: SmallKeeper(place, "north", NODES), story)
    with_desk(lambda: SmallKeeper(place, "north", NODES), again)


def test_the_oldest_outputs_go_first() -> None:
    kept = KeptOutputs(bytes_max=100, count_max=3)
    keys = [(TaskId(number), 1) for number in range(5)]
    assert kept.add(keys[0], 60) == []
    assert kept.add(keys[1], 30) == []
    assert kept.add(keys[2], 30) == [keys[0]]
    assert kept.add(keys[2], 10) == []  # said again: counted once
    assert kept.add(keys[3], 0) == []
    assert kept.add(keys[4], 1) == [keys[1]]
    assert [key in kept for key in keys] == [False, False, True, True, True]
    assert kept.add(keys[0], 1_000) == [keys[2], keys[3], keys[4], keys[0]]
