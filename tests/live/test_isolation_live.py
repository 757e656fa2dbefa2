"""Tasks of a real league whose daemons are root: what is open to a task, and what is closed."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.harness import LiveLeague, open_directory, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemons become somebody else")
LEAGUE = """
brokers: [{name: b1}]
clusters:
  - name: north
    nodes: [{count: 2, cpus: 2, memory: 1GiB}]
"""


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLeague]:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        yield league


def test_a_task_may_use_its_home_by_its_path(live: LiveLeague) -> None:
    script = "cd / && touch $HOME/x && cd $HOME && ls && pwd && stat -c %a ."
    job = live.submit({"command": ["sh", "-c", script]})
    assert live.wait(job)["state"] == "succeeded"
    name, place, mode = live.output(job).split()
    assert name == "x"
    assert Path(place).parent == live.home.member("north") / "tasks" / "work"
    assert mode == "700"


def test_what_a_member_keeps_beside_its_tasks_is_closed(live: LiveLeague) -> None:
    live.wait(live.submit({"command": "true"}))
    member = live.home.member("north")
    assert stat.S_IMODE(member.stat().st_mode) == 0o711
    others = {
        entry.name: stat.S_IMODE(entry.stat().st_mode) & 0o077
        for entry in member.iterdir()
        if entry.name != "tasks"
    }
    assert {"identity.pem", "journal", "log.jsonl"} <= set(others)
    assert set(others.values()) == {0}, others
