"""A daemon to be killed: it does what its standard input says, and tells what it hears.

Run as ``python -m tests.live.backends.doomed_daemon DIRECTORY DRIVER``; lines of JSON both ways.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

from hanse.live.backends.process.backend import ProcessBackend
from hanse.model.ids import TaskId
from hanse.model.messages import AttemptEnd
from hanse.model.resources import Resources
from tests.live.backends.desk import launch, now, task
from tests.live.backends.places import NODES

ROOT = Path(__file__).parents[3]


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


class Reports:
    """Says what it hears."""

    def on_attempt_started(self, task: TaskId, attempt: int) -> None:
        say(started=task, attempt=attempt)

    def on_attempt_ended(self, end: AttemptEnd) -> None:
        say(exited=end.task, attempt=end.attempt, outcome=end.outcome, code=end.exit_code, note=end.note)

    def on_capacity_withheld(self, node: int, amount: Resources) -> None:
        say(withheld=node, cpu=amount.cpu)


def obey(backend: ProcessBackend, order: dict[str, Any]) -> None:
    index = order.get("index", 0)
    if "start" in order:
        backend.start(launch(bytes.fromhex(order["start"]), index))
    elif "stop" in order:
        backend.stop(task(index), 1, order["stop"])
    elif "guard" in order:
        backend.extend_watchdog(now() + order["guard"])


async def main() -> None:
    driver = cast("Literal['auto', 'rlimit']", sys.argv[2])
    backend = ProcessBackend(Path(sys.argv[1]), "north", NODES, driver=driver)
    await backend.reconcile(Reports())
    say(launcher=backend.launcher_pid)
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def told() -> None:
        line = sys.stdin.readline()
        if not line:
            over.set_result(None)
            loop.remove_reader(sys.stdin)
        else:
            for order in json.loads(line):
                obey(backend, order)
            say(obeyed=True)

    loop.add_reader(sys.stdin, told)
    await over
    await backend.close()


class Doomed:
    """Such a daemon, from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.launcher = int(self.hear("launcher")["launcher"])

    def hear(self, what: str) -> dict[str, Any]:
        """The next thing it says of this kind; others are passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            heard: dict[str, Any] = json.loads(line)
            if what in heard:
                return heard
        raise AssertionError(f"it ended and never said {what}")

    def tell(self, *orders: dict[str, object]) -> None:
        """Have it do several things in one turn; returns when they are done."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(orders) + "\n")
        self.process.stdin.flush()
        self.hear("obeyed")

    def start(self, payload: bytes, index: int = 0) -> None:
        """Start an attempt and wait until it runs."""
        self.tell({"start": payload.hex(), "index": index})
        self.hear("started")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def doomed(place: Path, driver: str = "auto") -> Iterator[Doomed]:
    """Start one; it is dead at the end."""
    command = [sys.executable, "-m", "tests.live.backends.doomed_daemon", str(place), driver]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            yield Doomed(process)
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(main())
