"""The policy process and its host: questions, deaths, silence and nonsense."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from hanse.live.policy_process import host
from hanse.live.policy_process.host import PolicyProcess
from hanse.live.policy_process.process import FRAME_BYTES_MAX, encode_frame
from hanse.model.advice import Advice, AdviceRequest, ClusterCapacity, SizeEstimate, WaitingGroup
from hanse.model.effects import RequestAdvice
from hanse.model.ids import SECOND, JobId

SECONDS_MAX = 60.0
SIZES = tuple(SizeEstimate(cpu, 0, SECOND * 500 // cpu) for cpu in (500, 1_000, 2_000))
ROOM = ClusterCapacity("c1", (4_000, 0), (4_000, 0), (4_000, 0))
NONSENSE = """
import socket, sys
line = socket.socket(fileno=int(sys.argv[2]))
line.recv(1 << 16)
line.sendall({answer})
line.recv(1)
"""


def question(number: int) -> RequestAdvice:
    return RequestAdvice(
        number, AdviceRequest((ROOM,), (WaitingGroup(JobId(number), 0, 1, 0, SIZES, (0,)),), ())
    )


class Bench:
    """A host whose answers can be awaited."""

    def __init__(self, program: tuple[str, ...] = host.PROGRAM, model: str = "edge") -> None:
        self.counts: Counter[str] = Counter()
        self.answers: asyncio.Queue[tuple[int, tuple[Advice, ...]]] = asyncio.Queue()
        self.changed = asyncio.Event()
        self.host = PolicyProcess(lambda *told: self.answers.put_nowait(told), self.count, model, program)

    def count(self, what: str) -> None:
        self.counts[what] += 1
        self.changed.set()

    async def until(self, what: str, times: int = 1) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while self.counts[what] < times:
                self.changed.clear()
                await self.changed.wait()

    async def answer(self) -> int:
        async with asyncio.timeout(SECONDS_MAX):
            number, choices = await self.answers.get()
        assert [choice.job for choice in choices] == [number]
        return number

    @property
    def pid(self) -> int:
        assert self.host._process is not None
        return self.host._process.pid


def run(scene: Callable[[Bench], Awaitable[None]], program: tuple[str, ...] = host.PROGRAM) -> Bench:
    async def whole() -> Bench:
        bench = Bench(program)
        life = asyncio.create_task(bench.host.run())
        try:
            await scene(bench)
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
        return bench

    return asyncio.run(whole())


def test_the_newest_question_is_asked_and_answered() -> None:
    async def scene(bench: Bench) -> None:
        for number in (1, 2, 3):
            bench.host.ask(question(number))
        assert await bench.answer() == 3
        bench.host.ask(question(4))
        bench.host.ask(question(5))
        bench.host.ask(question(6))
        assert [await bench.answer(), await bench.answer()] == [4, 6]

    assert run(scene).counts["policy_question_replaced"] == 3


def test_a_killed_process_comes_back_and_answers() -> None:
    async def scene(bench: Bench) -> None:
        bench.host.ask(question(1))
        assert await bench.answer() == 1
        os.kill(bench.pid, signal.SIGKILL)
        await bench.until("policy_process_ended")
        bench.host.ask(question(2))
        assert await bench.answer() == 2

    assert run(scene).counts["policy_process_started"] == 2


def test_one_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "ANSWER_SECONDS_MAX", 0.2)

    async def scene(bench: Bench) -> None:
        await bench.until("policy_process_started")
        os.kill(bench.pid, signal.SIGSTOP)
        bench.host.ask(question(1))
        await bench.until("policy_process_ended")

    assert run(scene).counts["policy_process_hung"] == 1


def test_it_ends_with_its_host() -> None:
    pids: list[int] = []

    async def scene(bench: Bench) -> None:
        await bench.until("policy_process_started")
        pids.append(bench.pid)

    run(scene)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


@pytest.mark.parametrize(
    "answer",
    ["b'\\xff' * 99", "b'\\0\\0\\0\\1\\xc1'", "b'\\0\\0\\0\\3\\x92\\1\\1'"],
    ids=["long", "torn", "typed"],
)
def test_nonsense_is_refused_and_the_process_ended(answer: str) -> None:
    async def scene(bench: Bench) -> None:
        bench.host.ask(question(1))
        await bench.until("policy_process_ended")
        assert bench.answers.empty()

    program = (sys.executable, "-c", NONSENSE.format(answer=answer))
    assert run(scene, program).counts["policy_answer_refused"] == 1


def test_a_program_that_is_not_there_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PAUSE_SECONDS_FIRST", 0.01)

    async def scene(bench: Bench) -> None:
        bench.host.ask(question(1))
        await bench.until("policy_process_ended", 3)

    assert run(scene, ("/nowhere/at/all",)).counts["policy_process_started"] == 0


def test_a_question_that_is_too_long_is_dropped() -> None:
    groups = tuple(WaitingGroup(JobId(n), 0, 1, 0, SIZES * 3_000, (0,)) for n in range(20))
    long = RequestAdvice(1, AdviceRequest((ROOM,), groups, ()))
    assert encode_frame(long) == b""
    assert len(encode_frame(question(1))) < FRAME_BYTES_MAX

    async def scene(bench: Bench) -> None:
        await bench.until("policy_process_started")
        bench.host.ask(long)
        bench.host.ask(question(2))
        assert await bench.answer() == 2

    assert run(scene).counts["policy_question_too_long"] == 1
