"""Joining a running league with a token, as a newcomer does."""

import os
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hanse.cli.embedded.background_start import start_member
from hanse.cli.main import hanse, run
from hanse.client.contexts import Context, save_context
from hanse.client.exit_codes import ExitCode
from hanse.security.credentials import Credentials
from hanse.security.home import Home
from hanse.security.identity import Identity, Role
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


def test_founding_gives_the_members_of_this_machine_their_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSE_CONFIG", str(tmp_path / "config.json"))
    file = tmp_path / "league.yaml"
    file.write_text(LEAGUE, encoding="utf-8")
    words = ["init", "--home", str(tmp_path / "home"), str(file), "--member"]
    assert CliRunner().invoke(hanse, [*words, "b9"]).exit_code == 1
    assert not (tmp_path / "home").exists()
    assert CliRunner().invoke(hanse, [*words, "b1"]).exit_code == 0
    found = Credentials(tmp_path / "home" / "b1").certificate().identity
    assert found == Identity("local", Role.BROKER, "b1")


def test_the_founder_is_told_what_is_next_and_has_a_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSE_CONFIG", str(tmp_path / "config.json"))
    save_context("before", Context("before"), make_current=True)
    with open_directory() as directory:
        home, file = Home(directory / "home"), tmp_path / "league.yaml"
        file.write_text(LEAGUE, encoding="utf-8")
        hand = CliRunner()
        made = hand.invoke(hanse, ["init", "--home", str(home.path), str(file), "--member", "b1"])
        assert made.exit_code == 0, made.output
        told = made.output
        start, token = (
            f"hanse broker b1 --home {home.path}",
            f"hanse token create --home {home.path} warden north",
        )
        assert 0 < told.index(start) < told.index(token) < told.index("hanse join --home HOME 127.0.0.1:")
        assert "with the context 'local'; 'hanse config use before' goes back" in told
        assert run(["status"]) == ExitCode.UNAVAILABLE
        assert "start one of its brokers" in hand.invoke(hanse, ["status"]).output
        reader, process = start_member(home, "broker", "b1")
        try:
            assert os.read(reader, 100) == b"ready\n"
            seen = hand.invoke(hanse, ["status", "--json"])
            assert msgspec.json.decode(seen.stdout)["league"] == "local", seen.output
            words = ["access", "create", "--home", str(home.path), "ci", "--role", "viewer"]
            assert hand.invoke(hanse, words).exit_code == 0
            revoked = hand.invoke(hanse, ["access", "revoke", "ci"])
            assert revoked.exit_code == 0, revoked.output
            assert hand.invoke(hanse, [*token.split()[1:-2], "viewer", "ann"]).exit_code == 0
        finally:
            os.close(reader)
            process.kill()
            process.wait(60)


def test_founding_does_not_need_a_place_for_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "league.yaml"
    file.write_text(LEAGUE, encoding="utf-8")
    monkeypatch.setenv("HANSE_CONFIG", str(file / "config.json"))
    made = CliRunner().invoke(hanse, ["init", "--home", str(tmp_path / "home"), str(file)])
    assert made.exit_code == 0, made.output
    assert "no context was saved" in made.output
    assert "No broker has a certificate yet" in made.output


def test_a_forged_token_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        door = str(live.league.broker("b1").door)
        joining = ["join", "--home", str(tmp_path / "eve"), door, "--token", "hanse1.abc.def.ghi"]
        assert CliRunner().invoke(hanse, joining).exit_code == 1
        assert not (tmp_path / "eve").exists()
