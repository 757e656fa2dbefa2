"""What is shipped in ``deploy``: it is well formed, and its parts agree with each other."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hanse.cli.embedded.background_start import SMALL_DAEMON_ENVIRONMENT
from hanse.cli.main import COMMANDS, hanse
from hanse.league.file import load
from tests.live.telemetry.scraped import missing

DEPLOY = Path(__file__).parents[3] / "deploy"
UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")])
PROGRAM = "/usr/local/bin/hanse"
EXPOSURE_MAX = 2.0
"""What ``systemd-analyze security`` may say of a broker, from 0 (well kept) to 10."""

no_systemd = pytest.mark.skipif(bool(missing("systemd-analyze")), reason=missing("systemd-analyze"))


def instances(directory: Path) -> list[Path]:
    """The units as systemd would see them on a machine that has our program."""
    for unit in UNITS:
        text = unit.read_text(encoding="utf-8").replace(PROGRAM, sys.executable)
        (directory / unit.name).write_text(text, encoding="utf-8")
        shutil.copyfile(directory / unit.name, directory / unit.name.replace("@.", "@daemon."))
    return [directory / unit.name.replace("@.", "@daemon.") for unit in UNITS]


def test_there_is_a_unit_for_every_kind_of_member() -> None:
    assert [unit.name for unit in UNITS] == [
        "hanse-broker@.service",
        "hanse-renew@.service",
        "hanse-renew@.timer",
        "hanse-runner@.service",
        "hanse-warden@.service",
    ]


@no_systemd
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for unit in instances(tmp_path):
        words = ["systemd-analyze", "verify", "--man=no", str(unit)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), f"{unit.name}: {done.stderr}"


@no_systemd
def test_a_broker_is_well_kept(tmp_path: Path) -> None:
    (unit,) = [unit for unit in instances(tmp_path) if unit.name.startswith("hanse-broker")]
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert level is not None, done.stdout + done.stderr
    assert float(level[1]) <= EXPOSURE_MAX


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if unit.suffix == ".service"], ids=lambda unit: unit.stem
)
def test_the_units_call_commands_that_exist_with_options_that_exist(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
    program, verb, *words = line.split()
    assert program == PROGRAM
    assert verb in COMMANDS
    command = hanse.commands.get(verb) or hanse.get_command(None, verb)  # type: ignore[arg-type]
    assert command is not None
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_daemons_are_as_frugal_as_at_home_and_tasks_outlive_their_services() -> None:
    for kind in ("broker", "warden", "runner"):
        text = (DEPLOY / f"hanse-{kind}@.service").read_text(encoding="utf-8")
        (line,) = re.findall(r"^Environment=(.*)$", text, re.MULTILINE)
        assert dict(pair.split("=") for pair in line.split()) == SMALL_DAEMON_ENVIRONMENT
        assert ("KillMode=process" in text) == (kind != "broker")
        assert ("Delegate=yes" in text) == (kind != "broker")


def test_prometheus_scrapes_every_member_of_the_example() -> None:
    league = load(DEPLOY / "league.yaml")
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    targets = {
        scrape["job_name"]: scrape["static_configs"][0]["targets"] for scrape in config["scrape_configs"]
    }
    assert targets == {
        "hanse-broker": [str(entry.door) for entry in league.brokers],
        "hanse-warden": [str(entry.door) for entry in league.clusters],
        "hanse-runner": [str(runner.door) for entry in league.clusters for runner in entry.runners],
    }
    assert all(scrape["scheme"] == "https" for scrape in config["scrape_configs"])


def test_the_readme_lists_every_file() -> None:
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    for path in DEPLOY.iterdir():
        assert path.name == "README.md" or f"`{path.name}`" in text, path.name
