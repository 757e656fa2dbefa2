"""Launchers and supervisors that have nothing to do use no processor: nobody wakes up for nothing."""

import asyncio
from pathlib import Path

from hanse.live.backends.process.backend import ProcessBackend
from tests.live.backends.desk import HOUR, Desk, launch, now, read_until, with_desk
from tests.live.backends.process.test_recovery import SLEEP, plain, supervisor_of


def wakings(pid: int) -> int:
    """How often this process has gone to sleep of its own will."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def is_asleep(pid: int) -> bool:
    """True if this process waits for something, and for no processor."""
    return "\nState:\tS" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")


def test_idle_launchers_and_supervisors_sleep(place: Path) -> None:
    async def story(desk: Desk) -> None:
        assert isinstance(desk.backend, ProcessBackend)
        desk.guard(now() + HOUR)
        desk.start(launch(SLEEP))
        await read_until(desk.backend, b"set")
        pids = (desk.backend.launcher_pid, supervisor_of(place))
        last: list[int] = []
        before = [wakings(pid) for pid in pids]
        while before != last or not all(map(is_asleep, pids)):  # a busy machine lets them sleep late
            await asyncio.sleep(0.5)
            before, last = [wakings(pid) for pid in pids], before
        await asyncio.sleep(2)  # what is measured is that nothing happens
        desk.guard(now() + 2 * HOUR)
        assert [wakings(pid) for pid in pids] == before
        desk.stop(grace=0)
        await desk.end_of()

    with_desk(lambda: plain(place), story)
