"""Every story in this folder must come out as it is written.

``HANSE_REWRITE=1 pytest tests/golden`` accepts what comes out now; read the difference before you commit it.
"""

import os
from pathlib import Path

import pytest

from hanse.sim.scripts.golden_script import run_script
from hanse.sim.shipped_league import shipped_factories

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_story(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    played = run_script(written, shipped_factories())
    if os.environ.get("HANSE_REWRITE") == "1":
        path.write_text(played, encoding="utf-8")
    else:
        assert played == written


POINTS = {
    "claim": "=> to alpha: claim",
    "substitution": "substituted=[[2-0.0 1]]",
    "denial": "refused=[2-0.0#1 no_room",
    "grant": "lease=1 of b1#1",
    "conflict": "releases=[1]",
    "lease_expiry": "moved, 1 tasks: alpha cannot be reached",
    "warden_restart": "alpha ## starts, epoch 2",
    "broker_adoption": "b2 => to b1: ownership transferred shard=b1#1",
    "estate_closing": "b2 => to b1: drop replicas shard=b1#1",
    "partition": "1-0.0#1 lost",
    "gang": "gang=2",
    "dag": "1-0.3 attempt=0 outcome=cancelled",
    "preemption": "1-0.0#1 preempted",
    "on_loss": "ended, 1 tasks: lost: its node was lost",
}
"""What each story must show: accepting a new text must not lose its point."""


@pytest.mark.parametrize("name", POINTS)
def test_story_has_kept_its_point(name: str) -> None:
    told = Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8")
    assert POINTS[name] in told


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_story_is_sound(path: Path) -> None:
    told = [line for line in path.read_text(encoding="utf-8").split("\n") if not line.startswith("#")]
    assert not [line for line in told if line.startswith(("ERROR", "VIOLATION"))]


def test_there_are_stories() -> None:
    assert STORIES
