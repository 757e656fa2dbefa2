"""A runner's daemon to be killed at any moment: it runs tasks of one device each, on a node with two.

Run as ``python -m tests.live.backends.process.device_daemon DIRECTORY DRIVER TASKS``. It says
``{"launcher": PID}`` when it serves, and ends when all tasks have succeeded. What it knows is in files, which
its successor reads:
``tried/INDEX.ATTEMPT`` before an attempt is asked for, ``done/INDEX`` when a task has succeeded.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Literal, cast

from hanse.core.config import NodeConfig
from hanse.live.backends.process.backend import ProcessBackend
from hanse.model.hardware.devices import Device
from hanse.model.ids import TaskId, index_of
from hanse.model.messages import AttemptEnd, Outcome
from hanse.model.resources import Resources
from tests.live.backends.desk import launch, task
from tests.live.backends.places import shell

SIZE = Resources(cpu=500, memory=64 << 20, gpu=1)
TASK = """
exec 9>>"$HANSE_DEVICES_GPU" || exit 98
if ! flock -n 9; then echo "$HANSE_TASK.$HANSE_ATTEMPT met another at $HANSE_DEVICES" >> $LOG; exit 99; fi
case "$HANSE_DEVICES" in *,*|'') echo "$HANSE_TASK has '$HANSE_DEVICES'" >> $LOG; exit 97;; esac
(sleep 0.$((HANSE_TASK % 10 + 1))) &
wait
"""
"""Holds the lock of its device for as long as any of its processes lives: they inherit the file. A task of an
attempt that was given up, and that still runs, would hold it, too."""


def nodes(directory: Path) -> tuple[NodeConfig, ...]:
    """A node with two devices, which are files."""
    devices = tuple(Device("gpu", index, (str(directory / f"gpu{index}"),)) for index in range(2))
    return (NodeConfig(Resources(cpu=4_000, memory=1 << 30, gpu=2), devices=devices),)


class Daemon:
    """Keeps as many attempts running as there are devices."""

    def __init__(self, directory: Path, driver: str, count: int) -> None:
        self.directory = directory
        self.count = count
        limits = cast("Literal['auto', 'rlimit']", driver)
        self.backend = ProcessBackend(
            directory / "tasks", "north", nodes(directory), driver=limits, user="nobody"
        )
        self.running: dict[TaskId, int] = {}
        self.payload = shell(TASK, LOG=str(directory / "wrong"))
        self.over = asyncio.get_running_loop().create_future()

    def on_attempt_started(self, task: TaskId, attempt: int) -> None:
        """Nothing follows."""

    def on_capacity_withheld(self, node: int, amount: Resources) -> None:
        """Nothing is ever withheld here."""
        self._complain(f"{amount} of node {node} was withheld")

    def on_attempt_ended(self, end: AttemptEnd) -> None:
        self._note(end)
        self._start_more()

    def _note(self, end: AttemptEnd) -> None:
        self.running.pop(end.task, None)
        if end.outcome is Outcome.SUCCEEDED:
            (self.directory / "done" / str(index_of(end.task))).touch()
        elif end.outcome is not Outcome.LOST and end.exit_code != -9:  # killed as it became a program
            self._complain(f"{index_of(end.task)}.{end.attempt} ended as {end}")
        self.backend.forget(end.task, end.attempt)

    def _complain(self, sentence: str) -> None:
        with (self.directory / "wrong").open("a") as file:
            file.write(sentence + "\n")

    def _start_more(self) -> None:
        done = {int(path.name) for path in (self.directory / "done").iterdir()}
        if len(done) == self.count and not self.over.done():
            self.over.set_result(None)
        for index in range(self.count):
            if len(self.running) < 2 and index not in done and task(index) not in self.running:
                tried = self.directory / "tried"
                attempt = sum(1 for _ in tried.glob(f"{index}.*")) + 1
                (tried / f"{index}.{attempt}").touch()
                self.running[task(index)] = attempt
                self.backend.start(launch(self.payload, index, attempt=attempt, size=SIZE))

    async def run(self) -> None:
        found = await self.backend.reconcile(self)
        self.running = {alive.task: alive.attempt for alive in found.running}
        for end in found.ended:
            self._note(end)
        print(json.dumps({"launcher": self.backend.launcher_pid}), flush=True)
        self._start_more()
        await self.over
        await self.backend.close()


async def main() -> None:
    await Daemon(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])).run()


if __name__ == "__main__":
    asyncio.run(main())
