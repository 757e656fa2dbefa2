"""Every story in this folder must come out as it is written.

``HANSE_REWRITE=1 pytest tests/golden`` accepts what comes out now; read the difference before you commit it.
"""

import os
from pathlib import Path

import pytest

from hanse.sim.script import play
from hanse.sim.standard import standard_factories

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_story(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    played = play(written, standard_factories())
    if os.environ.get("HANSE_REWRITE") == "1":
        path.write_text(played, encoding="utf-8")
    else:
        assert played == written


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_story_is_sound(path: Path) -> None:
    told = [line for line in path.read_text(encoding="utf-8").split("\n") if not line.startswith("#")]
    assert not [line for line in told if line.startswith(("ERROR", "VIOLATION"))]


def test_there_are_stories() -> None:
    assert STORIES
