"""Starting a league: which file counts, who runs its tasks, and what is said before anything fails."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hanse.cli import task_user
from hanse.cli.commands.up import _with_user
from hanse.cli.embedded.home_league import load_or_create_league
from hanse.cli.embedded.running_members import PIDS
from hanse.cli.main import run
from hanse.client.contexts import Context, load, save_context
from hanse.client.exit_codes import ExitCode
from hanse.league.config import LeagueError
from hanse.security.home import Home

FILE = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - name: north
    backend: {kind: process, user: %s}
    nodes: [{count: 2, cpus: 2, memory: 1GiB}]
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "league.yaml"
    path.write_text(FILE % "ann")
    return path


def test_a_changed_file_counts_and_the_ports_stay(home: Home, source: Path) -> None:
    first = load_or_create_league(home, source, 1, 1, 1)
    assert load_or_create_league(home, source, 1, 1, 1) == first
    source.write_text(FILE % "bob")
    second = load_or_create_league(home, source, 1, 1, 1)
    assert second.cluster("north").backend.user == "bob"
    assert second.brokers == first.brokers
    assert second.cluster("north").door == first.cluster("north").door
    assert load_or_create_league(home, None, 1, 1, 1) == second  # it was written down


def test_another_league_does_not_take_the_place_of_one_that_is_there(home: Home, source: Path) -> None:
    load_or_create_league(home, source, 1, 1, 1)
    source.write_text("league: other\n" + FILE % "ann")
    with pytest.raises(LeagueError, match="has another league, 'local'"):
        load_or_create_league(home, source, 1, 1, 1)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("name: north", "name: south", "the cluster 'north' is missing"),
        ("{name: b1}, ", "", "the broker 'b1' is missing"),
        ("{name: b1}, {name: b2}", "{name: b2}, {name: b1}", "the broker 'b1' is no longer at its place"),
        ("name: north", "name: north\n    runners: [{name: r2}]", "the runner 'r1' of north is missing"),
    ],
)
def test_members_keep_their_places(home: Home, source: Path, old: str, new: str, why: str) -> None:
    with_runner = (
        FILE.replace("name: north", "name: north\n    runners: [{name: r1}]") if "r2" in new else FILE
    )
    source.write_text(with_runner % "ann")
    first = load_or_create_league(home, source, 1, 1, 1)
    source.write_text(FILE.replace(old, new) % "ann")
    with pytest.raises(LeagueError, match=f"{why}.*add new ones at the end"):
        load_or_create_league(home, source, 1, 1, 1)
    assert load_or_create_league(home, None, 1, 1, 1) == first


def test_new_members_come_at_the_end(home: Home, source: Path) -> None:
    first = load_or_create_league(home, source, 1, 1, 1)
    more = FILE.replace("{name: b2}", "{name: b2}, {name: b3}") + "  - {name: south, nodes: [{cpus: 1}]}\n"
    source.write_text(more % "ann")
    second = load_or_create_league(home, source, 1, 1, 1)
    assert second.members() == ["b1", "b2", "b3", "north", "south"]
    assert second.brokers[:2] == first.brokers
    assert second.broker("b3").door.port
    assert (home.member("b3") / "identity.pem").is_file()
    assert load_or_create_league(home, None, 1, 1, 1) == second


def test_a_running_league_is_not_changed_behind_its_back(home: Home, source: Path) -> None:
    first = load_or_create_league(home, source, 1, 1, 1)
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "north", str(home.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as member:
        assert member.stdout is not None
        member.stdout.readline()  # before that its command line may not be there yet
        (home.path / PIDS).write_bytes(msgspec.json.encode({"north": member.pid}))
        assert load_or_create_league(home, source, 1, 1, 1) == first
        source.write_text(FILE % "bob")
        with pytest.raises(LeagueError, match="hanse down"):
            load_or_create_league(home, source, 1, 1, 1)
        member.communicate()
    assert load_or_create_league(home, None, 1, 1, 1) == first


def test_the_user_of_tasks_is_kept_in_the_file(home: Home, source: Path) -> None:
    league = _with_user(home, load_or_create_league(home, source, 1, 1, 1), "carl")
    assert {entry.backend.user for entry in league.clusters} == {"carl"}
    assert load_or_create_league(home, None, 1, 1, 1) == league


def test_a_user_who_cannot_be_is_refused(source: Path) -> None:
    assert run(["up", "--user", "no-such-user"]) == ExitCode.USAGE
    assert run(["up", "--user", "root", "--from", str(source)]) == ExitCode.USAGE


def test_deleting_a_league_forgets_every_context_of_it(home: Home, source: Path) -> None:
    load_or_create_league(home, source, 1, 1, 1)
    save_context("mine", Context("local", str(home.path)))
    save_context("other", Context("local", "elsewhere"))
    assert run(["down", "--home", str(home.path), "--delete"]) == ExitCode.OK
    assert list(load().contexts) == ["other"]
    assert load().current == "other"


@pytest.fixture
def two(home: Home, source: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home of a second league, with the context 'two'; the first one's is in $HANSE_HOME."""
    second = Home(home.path.parent / "second")
    for name, place in (("one", home), ("two", second)):
        load_or_create_league(place, source, 1, 1, 1)
        save_context(name, Context("local", str(place.path)))
    monkeypatch.setenv("HANSE_HOME", str(home.path))
    return second


@pytest.mark.parametrize("words", [["--context", "two", "down"], ["down", "--context", "two"]])
def test_down_is_about_the_context_that_was_named(home: Home, two: Home, words: list[str]) -> None:
    assert run([*words, "--delete"]) == ExitCode.OK
    assert home.path.exists()
    assert not two.path.exists()
    assert load().current == "one"


def test_a_variable_names_a_context_too(home: Home, two: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSE_CONTEXT", "two")
    assert run(["down", "--home", str(home.path), "--delete"]) == ExitCode.OK  # said goes before set
    assert not home.path.exists()
    assert run(["down", "--delete"]) == ExitCode.OK
    assert not two.path.exists()


def test_down_does_not_guess(home: Home, two: Home, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["down", "--delete", "--context"]
    assert run([*words, "two", "--home", str(home.path)]) == ExitCode.USAGE
    assert run([*words, "three"]) == ExitCode.CONFIG
    save_context("far", Context("far", credentials=str(home.path.parent)))
    assert run([*words, "far"]) == ExitCode.CONFIG
    assert "is not on this machine" in capfd.readouterr().err
    assert home.path.exists()
    assert two.path.exists()
    assert (home.path.parent / "league.yaml").is_file()  # which does not make it a home
    assert run(["down", "--delete", "--home", str(home.path.parent)]) == ExitCode.FAILED
    assert home.path.exists()
    assert "'hanse down --context NAME' with each of: one, two" in capfd.readouterr().err


def test_up_does_not_take_anothers_context(home: Home, two: Home, capfd: pytest.CaptureFixture[str]) -> None:
    before = load()
    third = home.path.parent / "third"
    assert run(["up", "--home", str(third), "--context", "two"]) == ExitCode.CONFIG
    assert f"'two' belongs to another league, 'local' in {two.path}" in capfd.readouterr().err
    assert load() == before
    assert not third.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's tasks run as somebody else")
def test_a_python_that_tasks_may_not_run_is_told(
    home: Home, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.write_text(FILE % "nobody")
    league = load_or_create_league(home, source, 1, 1, 1)
    folder = tmp_path / "bin"
    folder.mkdir(0o755)
    python = folder / "python"
    python.touch(0o755)
    monkeypatch.setattr(task_user, "_required_paths", lambda: [folder, python])
    assert task_user.python_problem(league) is None
    folder.chmod(0o700)
    problem = task_user.python_problem(league)
    assert problem is not None
    assert f"nobody, which cannot use {folder}." in problem
    assert "--user" in problem
    os.chown(folder, pwd.getpwnam("nobody").pw_uid, 0)
    assert task_user.python_problem(league) is None
