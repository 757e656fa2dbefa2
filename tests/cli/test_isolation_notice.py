"""What is said of tasks that are not isolated; a league of somebody else than root is in ``tests/live``."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hanse.cli.isolation_notice import isolation_notice, isolation_notices
from hanse.league.config import LeagueConfig
from hanse.league.reader import league_from_data
from hanse.live.backends.process import sandbox
from tests.live.harness import open_directory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's daemons become somebody else")

ROOT = Path(__file__).parents[2]


def league(backend: Mapping[str, object]) -> LeagueConfig:
    cluster = {"name": "north", "backend": backend, "nodes": [{"cpus": 1}]}
    made = league_from_data({"brokers": [{"name": "b1"}], "clusters": [cluster]})
    assert isinstance(made, LeagueConfig), made
    return made


def test_a_way_that_is_closed_to_tasks_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "home").mkdir()
    with open_directory() as directory:
        for backend in ({"kind": "process"}, {"kind": "process", "user": "nobody"}):
            told = isolation_notice(league(backend), tmp_path / "home")
            assert told is not None
            assert "$HOME" in told
            assert isolation_notice(league(backend), directory) is None
    assert isolation_notice(league({"kind": "process", "user": "root"}), tmp_path / "home") is None
    assert isolation_notice(league({"kind": "null"}), tmp_path / "home") is None


def test_a_cluster_of_slurm_is_told() -> None:
    (told,) = isolation_notices(league({"kind": "slurm", "shared_dir": "/shared"}), Path("/"))
    assert "north are not isolated from each other" in told


def test_memory_that_is_not_limited_is_told() -> None:
    (told,) = isolation_notices(league({"kind": "process", "limits": "rlimit"}), Path("/"))
    assert "Memory of tasks without --mem is not limited" in told


def test_command_lines_that_are_not_hidden_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isolation_notices(league({"kind": "process"}), Path("/")) == []
    monkeypatch.setattr(sandbox, "hiding_problem", lambda: "it is forbidden")
    (told,) = isolation_notices(league({"kind": "process"}), Path("/"))
    assert "their command lines: they cannot get a /proc of their own (it is forbidden)" in told
    assert isolation_notices(league({"kind": "process", "user": "nobody"}), Path("/")) == []


def test_a_container_without_ids_for_jobs_is_told() -> None:
    script = """
from collections.abc import Mapping
from pathlib import Path
from hanse.live.backends.process.task_users import UsersMissingError, check_unused, choose_user
from hanse.league.config import UserRange
from tests.cli.test_isolation_notice import isolation_notice, league
print(isolation_notice(league({"kind": "process"}), Path("/")))
print(choose_user("", UserRange()))
try:
    check_unused(UserRange())
except UsersMissingError as error:
    print(error)
"""
    contained = ["unshare", "--user", "--map-root-user", sys.executable, "-c", script]
    done = subprocess.run(contained, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr)
    told, user, refused = done.stdout.splitlines()
    assert "all run as nobody" in told
    assert user == "nobody"
    assert "container has no user ids" in refused
