"""A league in which the disk of one cluster hangs: its tasks run elsewhere, and never twice at once."""

from collections.abc import Iterator
from pathlib import Path

from tests.live.backends.process.test_watchdog import disk_at
from tests.live.execution_log import command, complaints, lives
from tests.live.harness import LiveLeague, open_directory, stop_launchers
from tests.live.test_faults_live import LEAGUE, QUICK, shared_log, until

PAUSE = "0.1"
TIMES = "150"
"""It lives longer than it takes to give a cluster up: some 9 s with the quick timings."""
CHATTER = "(while :; do echo and so on; sleep 0.01; done) & {life}; kill $!"
TASKS = 6
"""More than one cluster holds: both have some."""


def all_at_work(log: Path) -> Iterator[bool]:
    while True:
        yield len({life.task for life in lives(log)}) == TASKS


def test_a_frozen_disk_gives_no_two_live_attempts() -> None:
    """1. Tasks that write to stdout run in both clusters. 2. The disk of one freezes. 3. Its tasks run in the
    other while it is still frozen. 4. No first attempt was alive when a second one began."""
    with shared_log() as log, open_directory() as directory:
        live = LiveLeague(directory / "home", QUICK + LEAGUE)
        place = live.home.member("north")
        files = {path.name: path.read_bytes() for path in place.iterdir()}
        with disk_at(place, directory / "disk") as freeze:
            hangs = False
            try:
                for name, content in files.items():
                    (place / name).write_bytes(content)
                live.start().settle()
                job = live.submit(
                    {"count": TASKS, "command": CHATTER.format(life=command(log, PAUSE, TIMES))}
                )
                until(all_at_work(log))
                frozen = {life.task for life in lives(log) if life.node.startswith("north/")}
                freeze("-f")
                hangs = True
                row = live.wait(job)
                done = {f"{job}.{task['index']}": task["attempt"] for task in live.tasks(job)}
            finally:
                if hangs:
                    freeze("-u")  # what hangs cannot be stopped
                live.close()
                stop_launchers(directory)
        found = lives(log)
        assert row["state"] == "succeeded"
        assert frozen
        assert all(done[task] > 1 for task in frozen)
        assert not (wrong := complaints(found, done, {})), wrong
