"""A home that somebody else owns or can write is refused, with the path and the cure."""

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from hanse.cli.embedded.league_setup import certify, create_league, with_ports
from hanse.cli.main import run
from hanse.client.exit_codes import ExitCode
from hanse.league.config import Address, BackendEntry, LeagueConfig, RunnerEntry
from hanse.league.file import load, store
from hanse.live.backends.slurm.settings import SlurmSettings
from hanse.live.config.home_permissions import backend_directory_problem, home_problem
from hanse.live.warden_daemon import WardenDaemon
from hanse.security.home import Home
from tests.live.harness import open_directory

LEAGUE = """
brokers: [{name: b1}]
clusters: [{name: north, backend: "null", nodes: [{cpus: 2}]}]
"""
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A league of which nothing runs."""
    with open_directory() as directory:
        monkeypatch.setenv("HANSE_CONFIG", str(directory / "config.json"))
        source = directory / "source.yaml"
        source.write_text(LEAGUE)
        league = with_ports(load(source))
        made = Home(directory / "deep" / "home")
        certify(made, league, create_league(made, league))
        yield made


def test_a_home_of_our_own_will_do(home: Home) -> None:
    assert home_problem(home) is None
    home.path.parent.chmod(0o1777)  # as /tmp is
    assert home_problem(home) is None
    assert home_problem(Home(home.path / "not" / "made" / "yet")) is None


@pytest.mark.parametrize(
    "which",
    [".", "..", "league.yaml", "authority", "authority/ca.key", "people/admin/identity.pem", "north",
     "north/identity.pem"],
)  # fmt: skip
def test_what_others_may_write_is_refused(home: Home, which: str) -> None:
    path = home.path / which if which != ".." else home.path.parent
    assert path.exists()
    path.chmod(path.stat().st_mode | 0o002)
    problem = home_problem(home)
    assert problem is not None
    assert f"'chmod go-w {path.absolute()}'" in problem


def test_only_what_matters_to_a_member_is_looked_at(home: Home) -> None:
    (home.member("b1") / "identity.pem").chmod(0o666)
    assert home_problem(home) is not None
    assert home_problem(home, "b1") is not None
    assert home_problem(home, "north") is None


@ROOT_ONLY
def test_working_directories_of_tasks_belong_to_their_users(home: Home) -> None:
    work = home.member("north") / "tasks" / "work" / "1.1"
    work.mkdir(parents=True)
    (work / "file").touch()
    for path in (work, work / "file"):
        os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
        path.chmod(0o777)
    home.member("north").chmod(0o711)
    assert home_problem(home) is None


KEPT = ["records", "records/1.1", "output", "output/1.1.stdout", "guard", "daemon.lock", "work"]


def make_kept(tasks: Path) -> None:
    """What a runner keeps of its tasks."""
    for name in KEPT:
        path = tasks / name
        if name in ("records", "output", "work"):
            path.mkdir(parents=True)
        else:
            path.touch()


@pytest.mark.parametrize("which", [".", *KEPT])
def test_what_a_runner_keeps_of_its_tasks_is_looked_at(home: Home, which: str) -> None:
    tasks = home.member("north") / "tasks"
    make_kept(tasks)
    assert home_problem(home) is None
    path = tasks / which
    path.chmod(path.stat().st_mode | 0o002)
    assert f"'chmod go-w {path}'" in str(home_problem(home))
    assert f"'chmod go-w {path}'" in str(home_problem(home, "north"))
    assert home_problem(home, "b1") is None


@ROOT_ONLY
def test_what_the_account_of_slurm_tasks_writes_is_its_own(home: Home) -> None:
    shared = home.member("north") / "tasks" / "shared"
    for name in ("records", "output", "keys", "orders"):
        (shared / name).mkdir(parents=True)
        if name != "orders":
            os.chown(shared / name, pwd.getpwnam("nobody").pw_uid, -1)
    assert home_problem(home) is None
    order = shared / "orders" / "1.1"
    order.touch()
    order.chmod(0o666)
    assert f"'chmod go-w {order}'" in str(home_problem(home))


def with_backend(home: Home, directory: str = "", shared_dir: str = "") -> LeagueConfig:
    """The league with this backend in its cluster, and a runner of its own."""
    league = load(home.league_file)
    entry = msgspec.structs.replace(
        league.clusters[0],
        backend=BackendEntry(
            kind="slurm", directory=directory, settings=SlurmSettings(shared_dir=shared_dir)
        ),
        runners=(RunnerEntry("r1", Address(port=1), Address(port=2)),),
    )
    return msgspec.structs.replace(league, clusters=(entry,))


@pytest.mark.parametrize("member", ["north", "r1"])
@pytest.mark.parametrize("which", ["..", ".", "MEMBER", "MEMBER/tasks", "MEMBER/tasks/records/1.1"])
def test_a_directory_elsewhere_is_looked_at_with_the_way_to_it(home: Home, member: str, which: str) -> None:
    place = home.path.parent.parent / "way" / "scratch"
    make_kept(place / member / "tasks")
    league = with_backend(home, directory=str(place))
    assert backend_directory_problem(league) is None
    path = place.parent if which == ".." else place / which.replace("MEMBER", member)
    path.chmod(path.stat().st_mode | 0o002)
    problem = str(backend_directory_problem(league, member))
    assert f"'chmod go-w {path}'" in problem
    assert "name another 'directory' in the league file" in problem
    assert backend_directory_problem(league, "b1") is None


@ROOT_ONLY
def test_a_directory_elsewhere_may_be_sticky_but_no_part_of_it_foreign(home: Home) -> None:
    place = home.path.parent.parent / "scratch"
    place.mkdir()
    place.chmod(0o1777)
    league = with_backend(home, directory=str(place))
    assert backend_directory_problem(league) is None
    (place / "north").mkdir()
    os.chown(place / "north", pwd.getpwnam("nobody").pw_uid, -1)
    assert f"{place / 'north'} belongs to nobody" in str(backend_directory_problem(league))


def test_a_shared_directory_is_looked_at(home: Home) -> None:
    place = home.path.parent.parent / "shared"
    (place / "north" / "records").mkdir(parents=True)
    (place / "north" / "records").chmod(0o777)  # the account's of the tasks
    (place / "north" / "lease").touch()
    league = with_backend(home, shared_dir=str(place))
    assert backend_directory_problem(league) is None
    (place / "north" / "lease").chmod(0o666)
    assert "name another 'shared_dir'" in str(backend_directory_problem(league))


def test_journals_are_looked_at(home: Home) -> None:
    segment = home.member("b1") / "journal" / "1.seg"
    segment.parent.mkdir()
    segment.touch()
    assert home_problem(home) is None
    segment.chmod(0o666)
    assert f"'chmod go-w {segment}'" in str(home_problem(home))


@ROOT_ONLY
def test_what_belongs_to_somebody_else_is_refused(home: Home) -> None:
    os.chown(home.league_file, pwd.getpwnam("nobody").pw_uid, -1)
    assert f"'chown root {home.league_file}'" in str(home_problem(home))


@ROOT_ONLY
def test_a_link_is_judged_with_its_target(home: Home) -> None:
    target = home.path.parent / "elsewhere.yaml"
    home.league_file.rename(target)
    home.league_file.symlink_to(target)
    assert home_problem(home) is None
    os.chown(target, pwd.getpwnam("nobody").pw_uid, -1)
    assert str(home.league_file) in str(home_problem(home))


def test_a_link_is_judged_with_the_way_to_its_target(home: Home) -> None:
    way = home.path.parent / "open"
    way.mkdir()
    home.league_file.rename(way / "league.yaml")
    home.league_file.symlink_to(way / "league.yaml")
    assert home_problem(home) is None
    way.chmod(0o777)
    assert f"'chmod go-w {way}'" in str(home_problem(home))


@ROOT_ONLY
def test_what_cannot_be_looked_at_is_told(home: Home) -> None:
    script = (
        "import os, sys; from pathlib import Path; from hanse.security.home import Home\n"
        "from hanse.live.config.home_permissions import home_problem\n"
        f"os.seteuid({pwd.getpwnam('nobody').pw_uid}); print(home_problem(Home(Path(sys.argv[1]))))"
    )
    home.path.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", script, str(home.path)], capture_output=True, text=True, check=True
    )
    assert "cannot be checked by nobody: Permission denied" in done.stdout


@pytest.mark.parametrize("words", [["up"], ["broker", "b1"], ["warden", "north"], ["runner", "r1"]])
def test_the_commands_refuse_it(home: Home, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    home.path.chmod(0o777)
    assert run([*words, "--home", str(home.path)]) == ExitCode.CONFIG
    assert f"'chmod go-w {home.path}'" in capfd.readouterr().err


@pytest.mark.parametrize("words", [["up"], ["warden", "north"], ["runner", "r1"]])
def test_the_commands_refuse_an_open_directory_elsewhere(
    home: Home, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    place = home.path.parent.parent / "scratch"
    place.mkdir()
    place.chmod(0o777)
    store(home.league_file, with_backend(home, directory=str(place)))
    assert run([*words, "--home", str(home.path)]) == ExitCode.CONFIG
    assert f"'chmod go-w {place}'" in capfd.readouterr().err
    assert not (place / "north").exists()


def test_a_warden_does_not_go_on_with_a_file_that_names_an_open_directory(home: Home) -> None:
    place = home.path.parent.parent / "scratch"
    place.mkdir()
    place.chmod(0o777)
    warden = SimpleNamespace(identity=SimpleNamespace(name="north"))
    told = WardenDaemon._settings_problem(
        cast(WardenDaemon, warden), with_backend(home, directory=str(place))
    )
    assert f"'chmod go-w {place}'" in told


def test_nothing_is_writable_by_others_whatever_the_umask() -> None:
    with open_directory() as directory:
        home = directory / "home"
        environment = {**os.environ, "HANSE_CONFIG": str(directory / "config.json")}
        for words in (["up", "--brokers", "1", "--clusters", "1"], ["down"]):
            subprocess.run(
                [sys.executable, "-m", "hanse", *words, "--home", str(home)],
                env=environment, umask=0, check=True, capture_output=True, timeout=300,
            )  # fmt: skip
        assert home_problem(Home(home)) is None
        loose = [path for path in home.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o022]
        assert not loose


def test_the_league_file_is_safe_whoever_stores_it(home: Home, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store(tmp_path / "league.yaml", load(home.league_file))
    finally:
        os.umask(before)
    assert (tmp_path / "league.yaml").stat().st_mode & 0o777 == 0o644
