"""The trial of one planted bug: a copy of the tree with it, its nearest tests, then seeds of chaos."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from tools.mutants.table import ROOT, Mutant, mutated

COPIED = (
    *("src", "tests", "tools", "examples", "docs", "bench", "deploy"),
    *("pyproject.toml", "setup.py", "requirements.lock", "Makefile", "LICENSE"),
    *("README.md", "ARCHITECTURE.md", "GLOSSARY.md", "CHANGELOG.md", "CONTRIBUTING.md"),
)
SIMULATED = ("src/hanse/model/", "src/hanse/policy/", "src/hanse/core/")
"""What chaos runs."""
PYTEST_FAILED = (1, 2, 3)
"""Exit codes of pytest by which a bug is caught: failed tests, an error before them, an error of its own."""
TAIL = 600
"""Characters kept of what noticed a bug."""


class Verdict(msgspec.Struct, frozen=True):
    """What became of one planted bug."""

    name: str
    caught_by: str
    """tests, chaos, a timeout of either; empty: it survived."""
    seconds: float
    said: str
    """The end of the output of what noticed it."""
    digest: str
    """Of the bug, its file and its tests: a verdict on something else is out of date."""


def digest_of(mutant: Mutant, root: Path = ROOT) -> str:
    """What a verdict depends on."""
    parts = [mutant.old, mutant.new, (root / mutant.file).read_text()]
    for test in mutant.tests:
        path = root / test
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        parts += [file.read_text() for file in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Bench:
    """A copy of the tree in which one bug after the other is tried."""

    def __init__(self, path: Path, seconds_max: float, seeds: int) -> None:
        self.path = path
        self.seconds_max = seconds_max
        self.seeds = seeds
        if path.exists():
            shutil.rmtree(path)
        path.mkdir(parents=True)
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info", "results")
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, path / name, ignore=ignored, symlinks=True)
            elif source.exists():
                shutil.copy2(source, path / name)
        (path / ".venv").symlink_to(ROOT / ".venv")

    def baseline(self, tests: tuple[str, ...]) -> str:
        """Why these tests say nothing: they fail without any bug. Empty if they pass."""
        noticed, said = self._tests(tests)
        return f"{' '.join(tests)} fail without any bug ({noticed}):\n{said}" if noticed else ""

    def baseline_chaos(self) -> str:
        """The same for the seeds."""
        noticed, said = self._chaos()
        return f"chaos fails without any bug ({noticed}):\n{said}" if noticed else ""

    def try_one(self, mutant: Mutant) -> Verdict:
        """Put a bug in, see who notices, take it out."""
        target = self.path / mutant.file
        before = target.read_text()
        began = time.monotonic()
        digest = digest_of(mutant, self.path)
        target.write_text(mutated(mutant, self.path))
        try:
            noticed, said = self._build(target)
            if not noticed:
                noticed, said = self._tests(mutant.tests)
            if not noticed and self.seeds and mutant.file.startswith(SIMULATED):
                noticed, said = self._chaos()
        finally:
            target.write_text(before)
            self._build(target)
        return Verdict(mutant.name, noticed, round(time.monotonic() - began, 1), said, digest)

    def _build(self, target: Path) -> tuple[str, str]:
        if target.suffix != ".c":
            return "", ""
        code, said = self._run("setup.py", "build_kernel")
        return ("compiler" if code else "", said)

    def _tests(self, tests: tuple[str, ...]) -> tuple[str, str]:
        code, said = self._run(
            "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests
        )
        if code is None:
            return "timeout of the tests", said
        if code and code not in PYTEST_FAILED:
            raise RuntimeError(f"pytest ended with {code} for {' '.join(tests)}:\n{said}")
        return ("tests" if code else ""), said

    def _chaos(self) -> tuple[str, str]:
        code, said = self._run("-m", "hanse", "chaos", "--seeds", str(self.seeds))
        if code is None:
            return "timeout of chaos", said
        return ("chaos" if code else ""), said

    def _run(self, *words: str) -> tuple[int | None, str]:
        """Run Python in the copy; its exit code (None: it took too long) and the end of what it said."""
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.path / 'src'}{os.pathsep}{self.path}",
            "PYTHONDONTWRITEBYTECODE": "1",  # what was compiled of one bug must not be taken for the next
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.path / ".hypothesis"),
        }
        with subprocess.Popen(  # noqa: S603  our own Python, with words of the table
            [sys.executable, *words], cwd=self.path, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                said, _ = process.communicate(timeout=self.seconds_max)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # our own session: the tests and all that they started
                said, _ = process.communicate()
                return None, said[-TAIL:]
        return process.returncode, said[-TAIL:]
