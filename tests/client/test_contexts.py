"""Contexts: which league a command speaks to."""

import json
import threading
from pathlib import Path

import pytest

from hanse.cli.main import run
from hanse.client import contexts
from hanse.client.contexts import (
    Context,
    SavedContext,
    current_context,
    keep_context,
    remove_home,
    save_context,
    use_context,
)
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode

NEAR = Context("near", "somewhere", "keys", {"b1": "host:1", "b2": "host:2"}, {"north": "host:3"})
FAR = Context("far")


def test_nothing_saved_is_no_league() -> None:
    with pytest.raises(CommandError, match="no league is running here") as told:
        current_context()
    assert told.value.status is ExitCode.UNAVAILABLE
    assert "hanse up" in told.value.hint


def test_what_is_saved_is_found_again(own_config: Path) -> None:
    save_context("a", NEAR)
    save_context("b", FAR)
    assert current_context() == ("a", NEAR)  # the first one is chosen without being asked for
    assert current_context("b") == ("b", FAR)
    save_context("b", FAR, make_current=True)
    assert current_context() == ("b", FAR)
    assert json.loads(own_config.read_text())["contexts"]["a"]["brokers"] == {"b1": "host:1", "b2": "host:2"}
    assert own_config.stat().st_mode & 0o777 == 0o600


def test_another_of_the_same_name_replaces() -> None:
    save_context("a", NEAR)
    save_context("a", FAR)
    assert current_context() == ("a", FAR)


def test_forgetting_a_home_chooses_another_league_only_if_there_is_one() -> None:
    save_context("a", NEAR)
    save_context("b", NEAR)
    save_context("c", FAR)
    save_context("d", FAR)
    assert remove_home(Path("nowhere")).current == "a"
    left = remove_home(Path("somewhere"))
    assert (left.current, list(left.contexts)) == ("", ["c", "d"])
    with pytest.raises(CommandError, match="no context is chosen") as told:
        current_context()
    assert "c, d" in told.value.hint
    save_context("e", NEAR, make_current=True)
    assert current_context() == ("e", NEAR)


def test_the_last_one_left_is_chosen() -> None:
    save_context("a", NEAR)
    save_context("b", FAR)
    assert remove_home(Path("somewhere")).current == "b"
    assert current_context() == ("b", FAR)


def home_of(path: Path, league: str = "local") -> Context:
    path.mkdir(parents=True, exist_ok=True)
    (path / "league.yaml").touch()
    return Context(league, str(path), str(path / "people" / "admin"))


def test_a_second_league_gets_a_name_of_its_own(tmp_path: Path) -> None:
    first, second, third = (home_of(tmp_path / name) for name in ("1", "2", "3"))
    assert keep_context(first) == SavedContext("local", "", is_new=True)
    assert keep_context(second) == SavedContext("local-2", "local", is_new=True)
    assert keep_context(third) == SavedContext("local-3", "local-2", is_new=True)
    assert keep_context(first) == SavedContext("local", "local-3", is_new=False)
    assert keep_context(second) == SavedContext("local-2", "local", is_new=False)
    assert contexts.load().contexts == {"local": first, "local-2": second, "local-3": third}
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "3")
    assert keep_context(home_of(link)).name == "local-3"
    (tmp_path / "1" / "league.yaml").unlink()  # gone: its name is free again
    assert keep_context(home_of(tmp_path / "4")).name == "local"


def test_a_name_that_another_league_has_is_refused(tmp_path: Path) -> None:
    first, second = (home_of(tmp_path / name) for name in ("1", "2"))
    keep_context(first, "mine")
    with pytest.raises(
        CommandError, match=f"'mine' belongs to another league, 'local' in {tmp_path / '1'}"
    ) as told:
        keep_context(second, "mine")
    assert told.value.status is ExitCode.CONFIG
    save_context("far", FAR)
    with pytest.raises(CommandError, match="'far' belongs to another league, 'far' elsewhere"):
        keep_context(second, "far")
    assert keep_context(first, "mine") == SavedContext("mine", "mine", is_new=False)


def test_a_name_that_is_not_there() -> None:
    save_context("a", NEAR)
    for act in (lambda: current_context("c"), lambda: use_context("c")):
        with pytest.raises(CommandError, match="no context 'c'") as told:
            act()
        assert told.value.status is ExitCode.CONFIG
        assert told.value.hint == "there are: a"
    assert current_context() == ("a", NEAR)


@pytest.mark.parametrize("text", ["", "{", '{"contexts": 3}', '{"contexts": {"a": {}}}', "\xff"])
def test_a_broken_file_is_named(own_config: Path, text: str) -> None:
    own_config.parent.mkdir()
    own_config.write_text(text, encoding="latin-1")
    with pytest.raises(CommandError, match="cannot be read") as told:
        contexts.load()
    assert told.value.status is ExitCode.CONFIG
    assert str(own_config) in told.value.message


def test_writers_at_once_lose_nothing() -> None:
    names = [f"c{number}" for number in range(16)]
    threads = [threading.Thread(target=save_context, args=(name, NEAR)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(contexts.load().contexts) == sorted(names)


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HANSE_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert contexts.config_path() == tmp_path / "hanse" / "config.json"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert contexts.config_path() == tmp_path / "me" / ".config" / "hanse" / "config.json"


# --- the command -------------------------------------------------------------------------------------------


def test_config_shows_and_chooses(capsys: pytest.CaptureFixture[str]) -> None:
    save_context("a", NEAR)
    save_context("b", FAR)
    assert run(["config", "contexts"]) == ExitCode.OK
    assert "* a  league near in somewhere" in capsys.readouterr().out
    assert run(["config", "use", "b"]) == ExitCode.OK
    assert current_context()[0] == "b"
    capsys.readouterr()
    assert run(["config", "contexts", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"current": "b", "contexts": ["a", "b"]}
    assert run(["config", "use", "c"]) == ExitCode.CONFIG
    assert "there are: a, b" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["option", "environment", "after"])
def test_the_context_of_one_command(
    how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_context("a", NEAR)
    save_context("b", FAR)
    if how == "environment":
        monkeypatch.setenv("HANSE_CONTEXT", "b")
        assert run(["config", "view"]) == ExitCode.OK
        assert "league       far" in capsys.readouterr().out
    elif how == "option":
        assert run(["--context", "b", "config", "view"]) == ExitCode.OK
        assert "league       far" in capsys.readouterr().out
    else:  # also behind the command: the league 'far' has no brokers
        assert run(["jobs", "--context", "b"]) == ExitCode.UNAVAILABLE
        assert "'far'" in capsys.readouterr().err
    assert current_context()[0] == "a"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    status = run(["completion", shell])
    said = capfd.readouterr()
    assert status == ExitCode.OK, said.err
    assert "_HANSE_COMPLETE" in said.out


def test_completion_offers_commands_contexts_and_clusters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_context("a", NEAR)
    monkeypatch.setenv("_HANSE_COMPLETE", "zsh_complete")
    for words, number, wanted in (
        ("hanse su", "1", "submit"),
        ("hanse config use ", "3", "a"),
        ("hanse drain n", "2", "north"),
        ("hanse wait 1", "2", ""),  # nobody answers: nothing is offered, and nothing breaks
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", number)
        assert run([]) in (0, 1)
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert said.out.split("\n")[1:2] in ([wanted], [""])
        assert wanted in said.out
