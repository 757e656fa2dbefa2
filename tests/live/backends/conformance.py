"""What every backend must do, whatever runs its tasks.

A backend's tests subclass ``BackendConformance`` and say how to make one and how to write the payloads it
needs (``backend_under_test``); pytest then runs all of the tests below, and those of ``stop_conformance``,
over it. Facts that a backend cannot offer are said by its flags, so that each one left out is written down
somewhere.
"""

import asyncio
import time
from pathlib import Path

import pytest

from hanse.live.backends.interface import (
    PENDING_REASON_CHARACTERS_MAX,
    ReconcileResult,
    RunningAttempt,
    Stream,
)
from hanse.model.attempt_key_derivation import derive_attempt_key
from hanse.model.ids import JobId, job_of, job_text
from hanse.model.messages import Outcome
from hanse.model.program import Program, encode_program
from tests.live.backends.desk import (
    ESTATE,
    SECOND,
    WAIT_SECONDS_MAX,
    Desk,
    at_desk,
    launch,
    read,
    task,
    with_desk,
)
from tests.live.backends.places import NODES
from tests.live.backends.stop_conformance import StopConformance


def _holds(path: Path, keys: set[str]) -> bool:
    """Whether a file but the output of the tasks themselves has one of these keys in it."""
    try:
        return not path.name.endswith("stdout") and any(key.encode() in path.read_bytes() for key in keys)
    except OSError:  # it is gone, or is none to be read
        return False


class BackendConformance(StopConformance):
    """The suite."""

    # --- keys -----------------------------------------------------------------------------------------------

    def test_an_attempt_reads_its_own_key_once_and_finds_it_nowhere_else(self, place: Path) -> None:
        if not self.keeps_output:
            pytest.skip("it runs no programs")
        secret = bytes(range(32))
        script = "cat; echo; cat; env; tr '\\0' ' ' < /proc/self/cmdline; tr '\\0' ' ' < /proc/$PPID/cmdline"
        payload = encode_program(Program(("/bin/sh", "-c", script), secret=secret))

        async def story(desk: Desk) -> None:
            keys = set()
            for index in range(2):
                await desk.run(launch(payload, index))
                key, _, rest = (await read(desk.backend, index)).decode().partition("\n")
                assert key == derive_attempt_key(secret, job_text(job_of(task(index))), index, 1).hex()
                assert f"HANSE_TASK={index}" in rest
                assert key not in rest
                assert secret.hex() not in rest
                keys.add(key)
            assert len(keys) == 2
            left = [path for path in place.rglob("*") if path.is_file() and _holds(path, keys)]
            assert left == []

        with_desk(lambda: self.make(place), story)

    # --- starts and ends ----------------------------------------------------------------------------------

    def test_it_has_the_nodes_it_was_given(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            assert await desk.backend.capacity() == NODES

        with_desk(lambda: self.make(place), story)

    def test_a_new_directory_holds_nothing(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            assert desk.found == ReconcileResult((), ())

        with_desk(lambda: self.make(place), story)

    def test_a_task_starts_and_then_succeeds(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            end = await desk.run(launch(self.exits(0)))
            assert (end.outcome, end.exit_code, end.note) == (Outcome.SUCCEEDED, 0, "")
            assert end.usage is not None
            assert 0 <= end.usage.run_time < WAIT_SECONDS_MAX * SECOND
            assert desk.order == [("started", task(0), 1), ("exited", task(0), 1)]

        with_desk(lambda: self.make(place), story)

    @pytest.mark.parametrize("code", [1, 77, 255])
    def test_an_exit_code_is_a_failure(self, place: Path, code: int) -> None:
        async def story(desk: Desk) -> None:
            end = await desk.run(launch(self.exits(code)))
            assert (end.outcome, end.exit_code) == (Outcome.FAILED, code)

        with_desk(lambda: self.make(place), story)

    def test_how_long_it_ran_is_measured(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            end = await desk.run(launch(self.lasts(0.3)))
            assert end.outcome is Outcome.SUCCEEDED
            assert end.usage is not None
            assert end.usage.run_time >= 300_000

        with_desk(lambda: self.make(place), story)

    def test_many_at_once_start_and_end_once_each(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            for index in range(self.many):
                desk.start(launch(self.exits(index % 3), index))
            for index in range(self.many):
                end = await desk.end_of(index)
                assert end.exit_code == index % 3
            assert len(desk.order) == 2 * self.many

        with_desk(lambda: self.make(place), story)

    def test_attempts_of_one_task_are_apart(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.start(launch(self.stubborn(), attempt=1))
            end = await desk.run(launch(self.exits(4), attempt=2))
            assert (end.attempt, end.exit_code) == (2, 4)
            assert (task(0), 1) not in desk.ends
            desk.stop(grace=0, attempt=1)
            assert (await desk.end_of(attempt=1)).outcome is Outcome.CANCELLED

        with_desk(lambda: self.make(place), story)

    def test_what_cannot_be_run_ends_with_a_reason(self, place: Path) -> None:
        if not self.refuses_payloads:
            pytest.skip("it runs any payload")

        async def story(desk: Desk) -> None:
            end = await desk.run(launch(b"\xc1 not a payload"))
            assert end.outcome is Outcome.FAILED
            assert end.note != ""

        with_desk(lambda: self.make(place), story)

    def test_nothing_waits_that_has_begun_or_is_not_there(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            job, other = job_of(task(0)), JobId(job_of(task(0)) + 1)
            assert desk.backend.pending_attempts(job) == ()
            asked = time.time_ns() // 1_000
            desk.start(launch(self.lasts(3_600)))
            before = desk.backend.pending_attempts(job)
            keys = [(wait.task, wait.attempt, wait.node) for wait in before]
            assert keys == ([(task(0), 1, 0)] if self.queues else [])
            assert all(asked <= wait.requested_at <= time.time_ns() // 1_000 for wait in before)
            assert all(0 < len(wait.reason) <= PENDING_REASON_CHARACTERS_MAX for wait in before)
            assert desk.backend.pending_attempts(other) == ()
            await desk.start_of()
            assert desk.backend.pending_attempts(job) == ()
            desk.stop(grace=0)
            await desk.end_of()
            assert desk.backend.pending_attempts(job) == ()

        with_desk(lambda: self.make(place), story)

    # --- output -------------------------------------------------------------------------------------------

    def test_output_of_an_unknown_attempt_is_an_error(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            with pytest.raises(FileNotFoundError):
                await read(desk.backend, 8)

        with_desk(lambda: self.make(place), story)

    def test_output_can_be_read_after_the_end(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            await desk.run(launch(self.prints("herring and salt\n")))
            expected = b"herring and salt\n" if self.keeps_output else b""
            assert await read(desk.backend) == expected
            assert await read(desk.backend, offset=8) == expected[8:]
            assert await read(desk.backend, offset=1_000) == b""
            assert await read(desk.backend, stream=Stream.STDERR) == b""

        with_desk(lambda: self.make(place), story)

    def test_following_an_output_ends_with_its_attempt(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.start(launch(self.lasts(0.3)))
            pieces = desk.backend.output(task(0), 1, Stream.STDOUT, follow=True)
            assert b"".join([piece async for piece in pieces]) == b""
            assert (await desk.end_of()).outcome is Outcome.SUCCEEDED

        with_desk(lambda: self.make(place), story)

    # --- restarts -----------------------------------------------------------------------------------------

    def test_a_restart_finds_what_lives_and_what_ended(self, place: Path) -> None:
        async def before(desk: Desk) -> None:
            desk.start(launch(self.stubborn(), 0, moves=False))
            desk.start(launch(self.stubborn(), 1))
            await desk.run(launch(self.exits(3), 2))
            await desk.run(launch(self.exits(0), 3))
            desk.forget(3)
            await desk.start_of(0)
            await desk.start_of(1)

        async def after(desk: Desk) -> None:
            if not self.outlives_daemons:
                assert desk.found == ReconcileResult((), ())
                return
            living = {RunningAttempt(task(0), 1, ESTATE, False), RunningAttempt(task(1), 1, ESTATE, True)}
            assert set(desk.found.running) == living
            assert [(end.task, end.exit_code) for end in desk.found.ended] == [(task(2), 3)]
            desk.stop(0, grace=0)
            desk.stop(1, grace=0)
            for index in (0, 1):
                assert (await desk.end_of(index)).outcome is Outcome.CANCELLED
                desk.forget(index)
            assert desk.starts == set()
            desk.forget(2)

        async def at_last(desk: Desk) -> None:
            assert desk.found == ReconcileResult((), ())

        for story in (before, after, at_last):
            with_desk(lambda: self.make(place), story)

    def test_an_end_while_nobody_was_there_is_found(self, place: Path) -> None:
        async def before(desk: Desk) -> None:
            desk.start(launch(self.lasts(0.2)))
            await desk.start_of()

        async def after(desk: Desk) -> None:
            if not self.outlives_daemons:
                assert desk.found == ReconcileResult((), ())
                return
            if desk.found.running:  # a slow machine: it is over a little later
                assert (await desk.end_of()).outcome is Outcome.SUCCEEDED
            else:
                assert [end.outcome for end in desk.found.ended] == [Outcome.SUCCEEDED]
            desk.forget()

        for story in (before, after):
            with_desk(lambda: self.make(place), story)

    def test_an_end_is_kept_until_it_is_forgotten(self, place: Path) -> None:
        async def before(desk: Desk) -> None:
            await desk.run(launch(self.exits(6)))

        async def again(desk: Desk) -> None:
            codes = [end.exit_code for end in desk.found.ended]
            assert codes == ([6] if self.outlives_daemons else [])

        for story in (before, again, again):
            with_desk(lambda: self.make(place), story)

    def test_closing_is_possible_before_anything_else(self, place: Path) -> None:
        async def whole() -> None:
            backend = self.make(place)
            assert await backend.capacity() == NODES
            await backend.close()

        asyncio.run(whole())

    def test_a_closed_backend_reports_nothing_more(self, place: Path) -> None:
        async def whole() -> None:
            async with at_desk(self.make(place)) as desk:
                desk.start(launch(self.lasts(3_600)))
                await desk.start_of()
                desk.stop(grace=0)
            heard = len(desk.order)
            await asyncio.sleep(0)
            assert len(desk.order) == heard

        asyncio.run(whole())
