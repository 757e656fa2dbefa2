"""Optional packages: a command that needs one which is not installed says what to install."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hanse.client.exit_codes import ExitCode
from hanse.registry import extras

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
WITHOUT = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None  # importing it raises ModuleNotFoundError, as if it were not installed
from hanse.cli.main import run
sys.exit(run(sys.argv[2:]))
"""


def run_without(packages: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, packages, *words],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("packages", "words", "status"),
    [
        ("torch", ("train", "edge"), ExitCode.UNAVAILABLE),
        ("pyarrow,pyarrow.parquet", ("trace", "describe", "jobs.parquet"), ExitCode.FILE),
        ("pyarrow,pyarrow.parquet", ("replay", "jobs.parquet", "--nodes", "200"), ExitCode.FILE),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(
    packages: str, words: tuple[str, ...], status: ExitCode, tmp_path: Path
) -> None:
    (tmp_path / "jobs.parquet").write_bytes(b"PAR1")
    done = run_without(packages, *(str(tmp_path / word) if ".parquet" in word else word for word in words))
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    (sentence,) = done.stderr.strip().split("\n")
    package = packages.partition(",")[0]
    assert package in sentence
    assert extras.install_command(extras.EXTRAS[package]) in sentence


def test_another_missing_module_is_a_bug() -> None:
    assert run_without("hanse.sim.traces.describe", "trace", "formats").returncode == ExitCode.BUG


def test_every_package_of_an_extra_is_known() -> None:
    """Those of ``otel`` are never missed by a command: without them a daemon logs a warning and goes on."""
    declared = {
        re.split(r"[^\w-]", package)[0]: extra
        for extra, packages in DECLARED.items()
        if extra not in ("dev", "otel")
        for package in packages
    }
    assert declared == extras.EXTRAS


def test_a_copy_of_the_repository_is_installed_again_from_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert extras.install_command("learn").endswith(f" install -e '{ROOT}[learn]'")
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    monkeypatch.setattr(extras, "_installed_from", lambda: "")
    assert extras.install_command("learn").endswith(" install 'hanse[learn]'")
    monkeypatch.setattr(extras, "_installed_from", lambda: "/copies/hanse")
    assert extras.install_command("learn").endswith(" install '/copies/hanse[learn]'")
