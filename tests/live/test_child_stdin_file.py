"""What a child reads, on both event loops."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from hanse.live.child_stdin_file import open_child_stdin

RUN = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
MUCH = os.urandom(1 << 20)

Run = Callable[[Coroutine[Any, Any, bytes]], bytes]


async def told_by(program: str, data: bytes) -> bytes:
    with open_child_stdin(data) as stdin:
        process = await asyncio.create_subprocess_exec(program, stdin=stdin, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out


@RUN
@pytest.mark.parametrize("data", [b"", MUCH])
def test_a_child_reads_all_of_it_and_its_end(run: Run, data: bytes) -> None:
    assert run(told_by("cat", data)) == data


@RUN
def test_a_child_that_ends_without_reading_is_nobodys_error(run: Run) -> None:
    for _ in range(20):
        assert run(told_by("true", MUCH)) == b""


def test_nothing_stays_open() -> None:
    def open_now() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = open_now()
    for _ in range(3):
        asyncio.run(told_by("true", b"x"))
    assert open_now() == before
