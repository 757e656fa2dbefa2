"""Benchmarks that run seldom must not rot: each answers ``--help``, and code in strings names what exists."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PEERS = ("spawning_hyperqueue.py", "spawning_ray.py", "peers.py")
"""These run inside an environment of another system."""


def commands() -> list[Path]:
    """Benchmarks that are run as a command."""
    found = sorted((ROOT / "bench").glob("*.py"))
    return [path for path in found if "__main__" in path.read_text() and path.name not in PEERS]


@pytest.mark.parametrize("path", commands(), ids=lambda path: path.stem)
def test_a_benchmark_answers_help(path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, path, "--help"], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert path.name in ran.stdout


def test_the_counted_program_runs() -> None:
    """``bench/instructions.py`` hands its program to valgrind as a text, which no type checker reads."""
    tree = ast.parse((ROOT / "bench" / "instructions.py").read_text())
    (program,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "CODE"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, "1", "1"], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    events, digest = ran.stdout.split()
    assert int(events) > 100
    assert len(digest) == 64
