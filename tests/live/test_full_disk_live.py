"""A submitter cannot stop the league by filling its disk."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.harness import LiveLeague, open_directory, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")

SECONDS_MAX = 60.0
"""Longer than anything here takes on a busy machine; reached only by a failure."""
LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, nodes: [{count: 2, cpus: 2, memory: 256MiB}]}
  - {name: south, nodes: [{count: 2, cpus: 2, memory: 256MiB}], backend: {kind: process, directory: %s}}
"""


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    with open_directory() as directory:
        options = f"size={megabytes}m,mode=0755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(directory)], check=True)
        try:
            yield directory
        finally:
            subprocess.run(["umount", "-l", str(directory)], check=True)


def test_a_task_that_fills_the_disk_is_ended_and_everything_else_goes_on() -> None:
    filler = {"command": "cat /dev/zero > big; sleep 1000", "clusters": {"allow": ["north"]}}
    with (
        small_disk(160) as disk,
        open_directory() as scratch,
        running(disk / "home", LEAGUE % scratch) as live,
    ):
        before = live.submit({"count": 2, "command": "sleep 5"})
        full = live.submit(filler)
        row = live.wait(full)
        assert row["state"] == "failed"
        (task,) = live.tasks(full)
        assert task["note"].startswith("its files took")
        after = live.submit({"count": 4, "command": "true"})
        assert live.wait(after)["succeeded"] == 4
        assert live.wait(before)["succeeded"] == 2
        assert all(process.poll() is None for process in live.processes.values())


def test_tasks_have_a_disk_of_their_own_where_the_league_file_says_so() -> None:
    with (
        open_directory() as home,
        small_disk(64) as scratch,
        running(home / "home", LEAGUE % scratch) as live,
    ):
        job = live.submit({"command": "pwd; cat /dev/zero > big; sleep 2", "clusters": {"allow": ["south"]}})
        live.wait(job)
        assert live.output(job).startswith(f"{scratch}/south/tasks/work/")


def test_a_warden_whose_disk_is_nearly_full_takes_no_work_until_there_is_room() -> None:
    with open_directory() as directory, open_directory() as scratch:
        live = LiveLeague(directory / "home", LEAGUE % scratch)
        place = live.home.member("north")
        files = {path.name: path.read_bytes() for path in place.iterdir()}
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0711", "none", place], check=True)
        try:
            for name, content in files.items():
                (place / name).write_bytes(content)
                (place / name).chmod(0o600)
            live.start().settle()
            drain(live, nodes=[1], reason="new fans")
            facts = os.statvfs(place)
            (place / "ballast").write_bytes(bytes(facts.f_bavail * facts.f_frsize - (256 << 10)))
            until(lambda: ("the disk of the warden is nearly full", [0]) in drains(live))
            assert ("new fans", [1]) in drains(live)
            job = live.submit({"count": 4, "command": "true"})
            assert live.wait(job)["succeeded"] == 4
            assert {task["cluster"] for task in live.tasks(job)} == {"south"}
            (place / "ballast").unlink()
            until(lambda: drains(live) == [("new fans", [1])])
        finally:
            live.close()
            subprocess.run(["umount", "-l", place], check=True)


def drain(live: LiveLeague, **wish: object) -> None:
    live.cluster("north").ask("POST", "/v1/drain", {"drain": True, **wish})


def drains(live: LiveLeague) -> list[tuple[str, list[int]]]:
    """Why north is drained, and which nodes."""
    found = live.cluster("north").ask("GET", "/v1/cluster")["drains"]
    return [(one.get("reason", ""), one.get("nodes", [])) for one in found]


def until(condition: Callable[[], bool]) -> None:
    """Look at the outside world until it is as it should be."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)  # there is nothing to await
