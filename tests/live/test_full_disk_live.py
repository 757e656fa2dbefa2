"""A submitter cannot stop the league by filling its disk."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hanse.security.identity import Role
from tests.live.harness import Door, LiveLeague, open_directory, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk takes root")

ANSWER_SECONDS_MAX = 10.0
"""Within which a door answers though the disk is full; much less than a client's own limit."""
ONE = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, nodes: [{count: 2, cpus: 2, memory: 256MiB}]}
"""
SECONDS_MAX = 60.0
"""Longer than anything here takes on a busy machine; reached only by a failure."""
LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - {name: north, nodes: [{count: 2, cpus: 2, memory: 256MiB}]}
  - {name: south, nodes: [{count: 2, cpus: 2, memory: 256MiB}], backend: {kind: process, directory: %s}}
"""


@contextmanager
def small_disk(megabytes: int, inodes: int = 0) -> Iterator[Path]:
    with open_directory() as directory:
        options = f"size={megabytes}m,nr_inodes={inodes},mode=0755"
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
        with mounted(live.home.member("north"), 24) as place, closing(live):
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


def test_output_that_fills_the_disk_is_dropped_and_jobs_are_taken_again() -> None:
    with small_disk(160) as disk, running(disk / "home", ONE) as live:
        loud = live.submit({"count": 4, "command": "head -c 60000000 /dev/zero"})
        until(lambda: bool(live.wait(loud)["state"] in ("succeeded", "failed")))
        until(lambda: answers(live, "b1", "POST", "/v1/jobs", {"jobs": [{"command": "true"}]}) == 200)
        after = live.submit({"count": 4, "command": "true"})
        assert live.wait(after)["succeeded"] == 4
        told = [live.cluster("north").raw("GET", logs_of(loud, row)) for row in live.tasks(loud)]
        dropped = [text for status, text in told if status == 404]
        assert dropped
        assert all(b"was deleted, as the oldest, to free disk space" in text for text in dropped)
        assert all(process.poll() is None for process in live.processes.values())


def test_questions_are_answered_at_once_while_the_disk_is_full() -> None:
    with small_disk(64) as disk, running(disk / "home", ONE) as live:
        job = live.submit({"count": 2, "command": "true"})
        live.wait(job)
        until(lambda: answers(live, "b2", "GET", f"/v1/jobs/{job}?local=1") == 200)
        live.submit({"command": "sleep 1000", "deadline": "5s"})  # then there is something to write
        ballast = disk / "ballast"
        deadline = time.monotonic() + 8.0  # so long the journals use up what they have, and the feed waits
        while time.monotonic() < deadline:
            fill(ballast)
            for broker in ("b1", "b2"):
                assert answers(live, broker, "GET", "/v1/jobs") == 200
                assert answers(live, broker, "GET", f"/v1/jobs/{job}?local=1") == 200
                assert answers(live, broker, "GET", "/v1/jobs/1-999?local=1") in (404, 503)
                assert answers(live, broker, "GET", "/v1/league") == 200
        ages = {path: age_of(live, path) for path in ("/v1/jobs", "/v1/league", f"/v1/jobs/{job}?local=1")}
        assert all(age is not None for age in ages.values()), ages
        until(lambda: (age_of(live, "/v1/jobs") or 0) > max(age or 0 for age in ages.values()))
        ballast.unlink()
        until(lambda: answers(live, "b1", "POST", "/v1/jobs", {"jobs": [{"command": "true"}]}) == 200)
        until(lambda: age_of(live, "/v1/jobs") is None)


def test_a_task_that_uses_up_the_inodes_is_ended_and_its_neighbours_are_not() -> None:
    many = "i=0; while [ $i -lt 6000 ]; do true > f$i || break; i=$((i+1)); done; sleep 1000"
    with small_disk(400, inodes=4000) as disk, running(disk / "home", ONE) as live:
        greedy = live.submit({"command": many})
        innocent = live.submit({"count": 2, "command": "sleep 3"})
        assert live.wait(greedy)["state"] == "failed"
        (row,) = live.tasks(greedy)
        assert "files" in row["note"]
        assert live.wait(innocent)["succeeded"] == 2
        until(lambda: answers(live, "b1", "POST", "/v1/jobs", {"jobs": [{"command": "true"}]}) == 200)
        assert live.wait(live.submit({"count": 4, "command": "true"}))["succeeded"] == 4


def test_nodes_whose_tasks_have_a_full_disk_of_their_own_get_no_work_until_there_is_room() -> None:
    with (
        open_directory() as home,
        small_disk(64) as scratch,
        running(home / "home", LEAGUE % scratch) as live,
    ):
        fill(scratch / "ballast")
        until(lambda: withheld(live) == {"the disk of its tasks is nearly full"})
        job = live.submit({"count": 4, "command": "true"})
        assert live.wait(job)["succeeded"] == 4
        assert {row["cluster"] for row in live.tasks(job)} == {"north"}
        waiting = live.submit({"command": "true", "clusters": {"allow": ["south"]}})
        (scratch / "ballast").unlink()
        until(lambda: withheld(live) == {""})
        assert live.wait(waiting)["succeeded"] == 1


FAR = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - name: north
    runners: [{name: far}]
    nodes: [{count: 2, cpus: 2, memory: 256MiB, runner: far}]
"""


def test_nodes_of_a_runner_by_itself_whose_disk_is_full_get_no_work_until_there_is_room() -> None:
    with open_directory() as directory:
        live = LiveLeague(directory / "home", FAR)
        with mounted(live.home.member("far"), 64) as disk, closing(live):
            live.start().settle()
            before = live.submit({"count": 2, "command": "sleep 4"})
            until(lambda: {row["state"] for row in live.tasks(before)} == {"running"})
            fill(disk / "ballast")
            at_once = live.submit({"count": 4, "command": "true"})  # before anybody has noticed
            until(lambda: withheld(live, "north") == {"far withholds the whole node; its log says why"})
            later = live.submit({"count": 4, "command": "true"})
            assert live.wait(before)["succeeded"] == 2
            assert {row["state"] for row in live.tasks(later)} == {"queued"}
            (disk / "ballast").unlink()
            until(lambda: withheld(live, "north") == {""})
            for job in (at_once, later):
                row = live.wait(job)
                assert (row["succeeded"], row["failed"]) == (4, 0)


@contextmanager
def mounted(place: Path, megabytes: int) -> Iterator[Path]:
    """A member's directory on a disk of its own, with what was in it."""
    files = {path.name: path.read_bytes() for path in place.iterdir()}
    options = f"size={megabytes}m,mode=0711"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], check=True)
    try:
        for name, content in files.items():
            (place / name).write_bytes(content)
            (place / name).chmod(0o600)
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def withheld(live: LiveLeague, cluster: str = "south") -> set[str]:
    """Why a cluster's nodes are not for the league."""
    return {node.get("withheld", "") for node in live.cluster(cluster).ask("GET", "/v1/cluster")["nodes"]}


def age_of(live: LiveLeague, path: str) -> int | None:
    """How old a broker's answer is, by its own word; None: it is true now."""
    door = Door(live, Role.BROKER, "b1", ANSWER_SECONDS_MAX)
    try:
        status, _ = door.raw("GET", path)
        assert status == 200
        return int(door.headers["Age"]) if "Age" in door.headers else None
    finally:
        door.close()


def fill(ballast: Path) -> None:
    """Take every byte that is free."""
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def answers(live: LiveLeague, broker: str, verb: str, path: str, body: object = None) -> int:
    """The status that a broker answers within a short time."""
    door = Door(live, Role.BROKER, broker, ANSWER_SECONDS_MAX)
    try:
        return door.raw(verb, path, body)[0]
    finally:
        door.close()


def logs_of(job: str, row: dict[str, Any]) -> str:
    return f"/v1/logs/{job}.{row['index']}?attempt={row['attempt']}&stream=stdout&node={row['node']}"


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
