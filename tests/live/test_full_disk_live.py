"""A submitter cannot stop the league by filling its disk."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.harness import open_directory, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")

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
