"""Broker's side of the policy process: starts it, asks it, and works without it when it is gone.

At most one question is pending. While it is pending, or while no process runs, a new question replaces an
older one that was not sent. A process that dies is restarted after a pause that doubles each time; one that
does not answer in time is killed. Nothing here can fail the daemon, and nothing waits for an answer.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from hanse.live.policy_process.process import FRAME_BYTES_MAX, FRAME_HEADER, decode_answer, encode_frame
from hanse.model.advice import Advice
from hanse.model.effects import RequestAdvice

PAUSE_SECONDS_FIRST: Final = 0.5
"""Pause before a process that died is restarted; it doubles up to the maximum, and is reset when a question
was answered."""
PAUSE_SECONDS_MAX: Final = 60.0
ANSWER_SECONDS_MAX: Final = 10.0
"""Seconds after which a process without an answer is considered hung."""
ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The network is small: more threads would only take memory and cores from other processes."""
log = logging.getLogger(__name__)

PROGRAM: Final = (sys.executable, "-m", "hanse.live.policy_process.process")
"""Command that is started, with the name of a model and the number of a socket as its last arguments."""

AdviceListener = Callable[[int, tuple[Advice, ...]], None]
Count = Callable[[str], None]


class PolicyProcess:
    """Policy process of one broker with a model of ``models.MODELS``. ``on_advice`` receives answers,
    ``count`` the names of occurrences."""

    def __init__(
        self, on_advice: AdviceListener, count: Count, model: str, program: Sequence[str] = PROGRAM
    ) -> None:
        self._on_advice = on_advice
        self._count = count
        self._command = (*program, model)
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: RequestAdvice | None = None
        self._timeout: asyncio.TimerHandle | None = None
        """Runs while an answer is pending."""
        self._pause = PAUSE_SECONDS_FIRST

    def ask(self, question: RequestAdvice) -> None:
        """Send a question as soon as possible; a newer question replaces it until then."""
        if self._unsent is not None:
            self._count("policy_question_replaced")
        self._unsent = question
        self._send()

    async def run(self) -> None:
        """Keep a process alive until this is cancelled."""
        while True:
            try:
                await self._run_process()
            except OSError as error:
                log.warning("the policy process cannot be started: %s", error)
            self._count("policy_process_ended")
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)

    async def _run_process(self) -> None:
        """Run one process until it ends."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._process = process = await asyncio.create_subprocess_exec(
                *(*self._command, str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, **ONE_THREAD},
            )
            try:
                theirs.close()
                reader, self._writer = await asyncio.open_connection(sock=ours)
                self._count("policy_process_started")
                self._send()
                await self._read_answers(reader)
            finally:
                await self._close_process(process)
        log.warning("the policy process has ended; the broker goes on without it")

    async def _read_answers(self, reader: asyncio.StreamReader) -> None:
        """Handle answers until the connection ends."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = FRAME_HEADER.unpack(await reader.readexactly(FRAME_HEADER.size))
                if size > FRAME_BYTES_MAX:
                    self._count("policy_answer_refused")
                    return
                try:
                    answer = decode_answer(await reader.readexactly(size))
                except msgspec.MsgspecError:
                    self._count("policy_answer_refused")
                    return
                self._cancel_timeout()
                self._pause = PAUSE_SECONDS_FIRST
                self._count("policy_answers")
                self._on_advice(answer.number, answer.choices)
                self._send()

    def _send(self) -> None:
        """Send the waiting question, if a process runs and no question is pending."""
        if self._writer is None or self._timeout is not None or self._unsent is None:
            return
        content, self._unsent = encode_frame(self._unsent), None
        if not content:
            self._count("policy_question_too_long")
            return
        self._timeout = asyncio.get_running_loop().call_later(ANSWER_SECONDS_MAX, self._on_timeout)
        self._writer.write(content)

    def _on_timeout(self) -> None:
        self._count("policy_process_hung")
        log.warning("the policy process does not answer; it is killed")
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    async def _close_process(self, process: asyncio.subprocess.Process) -> None:
        """Kill a process and wait for its end."""
        self._cancel_timeout()
        writer, self._writer, self._process = self._writer, None, None
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if writer is not None:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await process.wait()
