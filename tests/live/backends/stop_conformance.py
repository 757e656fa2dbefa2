"""What every backend must do when an attempt is stopped, or when its lease ends."""

import asyncio
from pathlib import Path

from hanse.model.messages import Outcome
from tests.live.backends.backend_under_test import BackendUnderTest
from tests.live.backends.desk import HOUR, SECOND, Desk, launch, now, task, with_desk


class StopConformance(BackendUnderTest):
    """The part of the suite about stops and the watchdog."""

    # --- stops --------------------------------------------------------------------------------------------

    def test_a_stop_ends_a_task_as_cancelled(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.start(launch(self.lasts(3_600)))
            await desk.start_of()
            desk.stop(grace=HOUR)
            assert (await desk.end_of()).outcome is Outcome.CANCELLED

        with_desk(lambda: self.make(place), story)

    def test_a_stop_before_the_start_was_heard(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.start(launch(self.lasts(3_600)))
            desk.stop(grace=0)
            assert (await desk.end_of()).outcome is Outcome.CANCELLED

        with_desk(lambda: self.make(place), story)

    def test_a_stubborn_task_is_ended_after_its_grace_and_not_before(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.start(launch(self.stubborn()))
            await self.is_set(desk)
            asked = now()
            desk.stop(grace=SECOND // 2)
            end = await desk.end_of()
            assert (end.outcome, end.exit_code) == (Outcome.CANCELLED, self.kill_code)
            assert now() - asked >= SECOND // 2

        with_desk(lambda: self.make(place), story)

    def test_a_second_stop_shortens_the_grace(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.start(launch(self.stubborn()))
            await self.is_set(desk)
            desk.stop(grace=HOUR)
            desk.stop(grace=SECOND // 10)
            assert (await desk.end_of()).outcome is Outcome.CANCELLED

        with_desk(lambda: self.make(place), story)

    def test_a_second_stop_does_not_lengthen_the_grace(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.start(launch(self.stubborn()))
            await self.is_set(desk)
            desk.stop(grace=SECOND // 10)
            desk.stop(grace=HOUR)
            assert (await desk.end_of()).outcome is Outcome.CANCELLED

        with_desk(lambda: self.make(place), story)

    def test_stops_of_what_is_not_there_are_ignored(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.stop(5)
            assert (await desk.run(launch(self.exits(0)))).outcome is Outcome.SUCCEEDED
            desk.stop(0)
            desk.stop(0, attempt=9)
            await desk.run(launch(self.exits(0), 1))
            assert len(desk.order) == 4

        with_desk(lambda: self.make(place), story)

    def test_forgetting_what_is_not_there_or_not_over_is_ignored(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.forget(3)
            desk.start(launch(self.lasts(3_600)))
            await desk.start_of()
            desk.forget(0)
            desk.stop(0, grace=0)
            assert (await desk.end_of()).outcome is Outcome.CANCELLED
            desk.forget(0)
            desk.forget(0)

        with_desk(lambda: self.make(place), story)

    # --- the watchdog -------------------------------------------------------------------------------------

    def test_the_watchdog_ends_what_runs(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            until = now() + 3 * SECOND // 2  # time enough to start on a busy machine
            desk.guard(until)
            desk.start(launch(self.stubborn(), 0))
            desk.start(launch(self.lasts(3_600), 1))
            ends = [await desk.end_of(0), await desk.end_of(1)]
            assert [end.outcome for end in ends] == [Outcome.LOST, Outcome.LOST]
            assert all("lease" in end.note for end in ends)
            assert now() >= until

        with_desk(lambda: self.make(place), story)

    def test_the_watchdog_waits_when_it_is_told_to(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.guard(now() + 3 * SECOND // 2)
            desk.start(launch(self.lasts(2)))
            begun = asyncio.ensure_future(desk.start_of())
            while not begun.done():  # a start may take longer than the lease on a busy machine
                desk.guard(now() + 3 * SECOND // 2)
                await asyncio.wait([begun], timeout=0.1)
            desk.guard(now() + HOUR)
            assert (await desk.end_of()).outcome is Outcome.SUCCEEDED

        with_desk(lambda: self.make(place), story)

    def test_the_watchdog_that_was_told_to_wait_holds_at_the_later_time(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.guard(now() + 3 * SECOND // 2)
            desk.start(launch(self.stubborn()))
            begun = asyncio.ensure_future(desk.start_of())
            while not begun.done():  # a start may take longer than the lease on a busy machine
                desk.guard(now() + 3 * SECOND // 2)
                await asyncio.wait([begun], timeout=0.1)
            until = now() + 2 * SECOND
            desk.guard(until)
            assert (await desk.end_of()).outcome is Outcome.LOST
            assert now() >= until

        with_desk(lambda: self.make(place), story)

    def test_the_watchdog_is_not_told_an_earlier_time(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.guard(now() + HOUR)
            desk.guard(now() - SECOND)
            assert (await desk.run(launch(self.exits(0)))).outcome is Outcome.SUCCEEDED

        with_desk(lambda: self.make(place), story)

    def test_the_first_guard_holds_for_what_runs_already(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.start(launch(self.stubborn()))
            await self.is_set(desk)
            desk.guard(now() + SECOND // 10)
            assert (await desk.end_of()).outcome is Outcome.LOST

        with_desk(lambda: self.make(place), story)

    def test_nothing_starts_without_a_lease(self, place: Path) -> None:
        async def story(desk: Desk) -> None:
            desk.guard(now() - SECOND)
            end = await desk.run(launch(self.exits(0)))
            assert end.outcome is Outcome.UNSTARTED
            assert desk.order == [("exited", task(0), 1)]
            desk.guard(now() + HOUR)
            assert (await desk.run(launch(self.exits(0), 1))).outcome is Outcome.SUCCEEDED

        with_desk(lambda: self.make(place), story)
