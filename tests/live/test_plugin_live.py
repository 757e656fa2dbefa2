"""The package in ``examples/plugin``, installed: its order in a replay, and all it adds in a real league."""

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.live.harness import open_directory, stop_launchers

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
SECONDS_MAX = 300.0
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package as pip would install it there: its wheel, unpacked."""
    place = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, place / "source")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(place)],
        cwd=source, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    wheel = place / built.stdout.splitlines()[-1]
    with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as content:
        content.extractall(place / "site")
    return place / "site"


class Machine:
    """Somebody who types commands where the package is installed, or is not."""

    def __init__(self, directory: Path, site: Path | None) -> None:
        self.directory = directory
        self.home = directory / "home"
        paths = [*([str(site)] if site is not None else []), os.environ.get("PYTHONPATH", "")]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "HANSE_HOME": str(self.home),
            "HANSE_CONFIG": str(directory / "config.json"),
        }

    def hanse(self, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "hanse", *map(str, words)],
            env=self.environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip

    def does(self, *words: str | Path) -> str:
        """A command that must go well; what it printed."""
        done = self.hanse(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def tasks(self, job: str) -> list[dict[str, Any]]:
        """The tasks of a job, as a program gets them."""
        found: list[dict[str, Any]] = json.loads(self.does("show", job, "--json"))["tasks"]
        return found


@pytest.fixture
def machine(installed: Path) -> Iterator[Machine]:
    with open_directory() as directory:
        found = Machine(directory, installed)
        try:
            yield found
        finally:
            found.hanse("down")
            stop_launchers(directory)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two users: four long jobs of the first, then a short one of the second."""
    path = tmp_path / "log.swf"
    jobs = [(1, 100, 1), (2, 100, 1), (3, 100, 1), (4, 100, 1), (5, 10, 2)]
    rows = [f"{job} {job} 0 {run} 1 -1 -1 1 {run} -1 1 {user} 1 1 1 -1 -1 -1" for job, run, user in jobs]
    path.write_text("; UnixStartTime: 0\n" + "\n".join(rows) + "\n")
    return path


def test_its_order_runs_in_a_replay(machine: Machine, trace: Path) -> None:
    words = ("replay", trace, "--nodes", "2", "--clusters", "1", "--brokers", "1", "--policy", "hanse")
    results = machine.directory / "results.json"
    delays = {}
    for order in ("fifo", "tenant-share"):
        machine.does(*words, "--engine", "machines", "--order", order, "--json", results)
        (row,) = json.loads(results.read_text())
        assert (row["order"], row["jobs_ended"]) == (order, 5)
        delays[order] = row["delay_mean"]
    assert delays["tenant-share"] < delays["fifo"] - 10  # the short job overtakes two of the other user's
    refused = machine.hanse(*words[:-1], "central", "--order", "tenant-share")
    assert "the schedulers of the literature know only fewest-remaining" in refused.stderr
    refused = machine.hanse(*words, "--engine", "compiled", "--order", "tenant-share")
    assert refused.returncode != 0
    orders = "[fifo|fewest-remaining|short-first|priority|shortest-work|tenant-share]"
    assert orders in machine.does("replay", "--help")


def test_a_live_league_uses_all_it_adds(machine: Machine) -> None:
    machine.does("up", "--from", EXAMPLE / "league.yaml")
    machine.does("drain", "north")
    first, second = (
        machine.does("submit", "--tenant", tenant, "-n", count, "--cpus", "1", "--", "true").split()[0]
        for tenant, count in (("physics", "4"), ("history", "2"))
    )
    machine.does("undrain", "north")
    machine.does("wait", first, second)
    physics, history = machine.tasks(first), machine.tasks(second)
    assert {task["state"] for task in (*physics, *history)} == {"succeeded"}
    # The order: history has a task at work before the last of physics.
    assert min(task["started"] for task in history) < max(task["started"] for task in physics)
    # The backend: nothing ran, and it took as long as the league file says.
    assert all(task["ended"] - task["started"] >= 900_000 for task in (*physics, *history))
    # The placer: a task alone is on the first node.
    for _ in range(3):
        alone = machine.does("submit", "--cpus", "1", "--", "true").split()[0]
        machine.does("wait", alone)
        assert [task["node"] for task in machine.tasks(alone)] == [0]
    kept = yaml.safe_load((machine.home / "league.yaml").read_text())
    assert kept["clusters"][0]["backend"] == {"kind": "sleep", "duration": "1000000us"}
    machine.does("down")
    machine.does("up")  # a journal is replayed with the order that it was written under


def test_without_the_package_the_league_file_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    refused = Machine(tmp_path, None).hanse("up", "--from", EXAMPLE / "league.yaml")
    assert refused.returncode != 0
    for name, group in (
        ("tenant-share", "hanse.queue_orders"),
        ("lowest-number", "hanse.placers"),
        ("sleep", "hanse.backends"),
    ):
        assert f"not '{name}'" in refused.stderr
        assert f"entry point in the group {group}" in refused.stderr
    assert "Traceback" not in refused.stderr
