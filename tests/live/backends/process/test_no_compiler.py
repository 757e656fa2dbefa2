"""An installation without a C compiler: what cannot work says so, and what to do."""

import subprocess
import sys
from pathlib import Path

from tests.live.harness import LiveLeague

LEAGUE = """
league: bare
brokers:
  - name: b1
clusters:
  - name: north
    nodes: [{count: 1, cpus: 1, memory: 1GiB}]
"""
WITHOUT = (
    "import hanse.live.supervisor as supervisor;"
    "supervisor.PROGRAM = supervisor.PROGRAM.with_name('not-built');"
    "from hanse.cli.main import main; main()"
)


def test_a_warden_of_processes_says_that_the_supervisor_is_not_built(tmp_path: Path) -> None:
    live = LiveLeague(tmp_path / "home", LEAGUE)
    command = [sys.executable, "-c", WITHOUT, "warden", "north", "--home", str(tmp_path / "home")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    live.close()
    assert ended.returncode != 0
    assert "install gcc and reinstall" in ended.stderr
    assert "bug in Hanse" not in ended.stderr
