"""The null backend: the common suite, and what is its own."""

import asyncio
from pathlib import Path

import pytest

from hanse.core.config import NodeConfig
from hanse.live.backends import null
from hanse.live.backends.interface import Stream
from hanse.live.backends.null import NullBackend, NullTask, null_payload
from hanse.model.messages import Outcome
from hanse.model.program import Program, encode_program
from tests.live.backends.conformance import BackendConformance
from tests.live.backends.desk import HOUR, SECOND, Desk, launch, task, with_desk
from tests.live.backends.places import NODES


class TestNullConformance(BackendConformance):
    outlives_daemons = False
    keeps_output = False
    refuses_payloads = False
    many = 2_000

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path

    def make(self, place: Path, nodes: tuple[NodeConfig, ...] = NODES) -> NullBackend:  # noqa: ARG002  it needs none
        return NullBackend(nodes)

    def exits(self, code: int) -> bytes:
        return null_payload(NullTask(code=code))

    def lasts(self, seconds: float) -> bytes:
        return null_payload(NullTask(int(seconds * SECOND)))

    def stubborn(self) -> bytes:
        return null_payload(NullTask(HOUR, stubborn=True))

    def prints(self, text: str) -> bytes:  # noqa: ARG002  nothing is printed
        return null_payload(NullTask())


def test_real_commands_last_as_long_as_the_backend_was_told() -> None:
    async def story(desk: Desk) -> None:
        end = await desk.run(launch(encode_program(Program(("/bin/false",)))))
        assert end.outcome is Outcome.SUCCEEDED
        assert end.usage is not None
        assert end.usage.run_time >= 200_000

    with_desk(lambda: NullBackend(NODES, duration=200_000), story)


def test_followers_are_bounded_and_let_go() -> None:
    async def story(desk: Desk) -> None:
        desk.start(launch(null_payload(NullTask(HOUR))))

        async def follow() -> None:
            async for _ in desk.backend.output(task(0), 1, Stream.STDOUT, follow=True):
                raise AssertionError("nothing is ever written")

        followers = [asyncio.ensure_future(follow()) for _ in range(null.FOLLOWERS_MAX)]
        await asyncio.sleep(0)  # each takes its place
        with pytest.raises(OSError, match="followed already"):
            await follow()
        followers[0].cancel()
        await asyncio.wait([followers[0]])
        last = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
        desk.stop(grace=0)
        await asyncio.gather(*followers[1:], last)

    with_desk(lambda: NullBackend(NODES), story)
