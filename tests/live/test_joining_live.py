"""Joining a running league with a token, as a newcomer does."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hanse.app.cli import hanse, run
from hanse.app.exit_codes import ExitCode
from hanse.live.identity.credentials import Credentials
from hanse.live.identity.identity import Identity, Role
from tests.live.harness import open_directory, running

LEAGUE = """
brokers: [{name: b1}]
clusters: [{name: north, backend: "null", nodes: [{cpus: 4}]}]
"""


def test_a_token_lets_somebody_in_once_with_the_role_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSE_CONFIG", str(tmp_path / "config.json"))
    hand = CliRunner()
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        home = str(live.home.path)
        made = hand.invoke(hanse, ["token", "create", "--home", home, "viewer", "alice"])
        assert made.exit_code == 0, made.output
        token = made.output.strip()
        door = str(live.league.broker("b1").door)
        joining = ["join", "--home", str(tmp_path / "alice"), door, "--token", token]
        joined = hand.invoke(hanse, joining)
        assert joined.exit_code == 0, joined.output
        assert "viewer alice" in joined.output
        again = hand.invoke(hanse, [*joining[:2], str(tmp_path / "mallory"), *joining[3:]])
        assert again.exit_code == 1
        assert "used before" in again.output
        seen = hand.invoke(hanse, ["status", "--json"])
        assert seen.exit_code == 0, seen.output
        assert msgspec.json.decode(seen.stdout)["league"] == "local"
        assert run(["submit", "--", "true"]) == ExitCode.FORBIDDEN


def test_founding_gives_the_members_of_this_machine_their_certificates(tmp_path: Path) -> None:
    file = tmp_path / "league.yaml"
    file.write_text(LEAGUE, encoding="utf-8")
    words = ["init", "--home", str(tmp_path / "home"), str(file), "--member"]
    assert CliRunner().invoke(hanse, [*words, "b9"]).exit_code == 1
    assert not (tmp_path / "home").exists()
    assert CliRunner().invoke(hanse, [*words, "b1"]).exit_code == 0
    found = Credentials(tmp_path / "home" / "b1").certificate().identity
    assert found == Identity("local", Role.BROKER, "b1")


def test_a_forged_token_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        door = str(live.league.broker("b1").door)
        joining = ["join", "--home", str(tmp_path / "eve"), door, "--token", "hanse1.abc.def.ghi"]
        assert CliRunner().invoke(hanse, joining).exit_code == 1
        assert not (tmp_path / "eve").exists()
