"""Access tokens at the client's side: where they come from, and that nobody gets to see them."""

from pathlib import Path

import pytest

from hanse.cli.embedded.background_start import daemon_environment
from hanse.cli.main import run
from hanse.client.access_token import AccessToken, find_token
from hanse.client.contexts import Context, current_context, save_context
from hanse.client.errors import CommandError
from hanse.client.exit_codes import ExitCode

TEXT = "hanse-access-1.Y2xhaW1z.c2VhbA"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ci.token"
    path.write_text(f"{TEXT}\n")
    path.chmod(0o600)
    return path


def shown(path: Path, given: str | None = None) -> str:
    token = find_token(str(path), given)
    assert token is not None
    return token.text()


def test_the_nearest_source_counts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HANSE_TOKEN", raising=False)
    assert find_token("") is None
    assert shown(file) == TEXT
    monkeypatch.setenv("HANSE_TOKEN", f"{TEXT}2")
    assert shown(file) == f"{TEXT}2"
    assert shown(file, f"{TEXT}3") == f"{TEXT}3"


def test_a_file_is_read_whenever_the_token_is_shown(file: Path) -> None:
    token = AccessToken("a file", path=file)
    assert token.text() == TEXT
    file.write_text(f"{TEXT}-renewed")
    assert token.text() == f"{TEXT}-renewed"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_file_that_others_may_read_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(CommandError, match="others may read") as told:
        AccessToken("a file", path=file).text()
    assert told.value.status is ExitCode.CONFIG
    assert f"chmod 600 {file}" in told.value.hint


@pytest.mark.parametrize(
    "text", ["", "hanse-join-1-abc", "something", f"{TEXT} x", f"{TEXT}\r\nX-Evil: 1", f"{TEXT}é"]
)
def test_what_is_no_token_goes_into_no_header_and_no_message(text: str) -> None:
    with pytest.raises(CommandError, match="holds no access token") as told:
        AccessToken("$HANSE_TOKEN", text).text()
    assert told.value.status is ExitCode.CONFIG
    if len(text) > 1:
        assert text not in told.value.message + told.value.hint


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read") as told:
        AccessToken("a file", path=tmp_path / "none").text()
    assert "hanse config set" in told.value.hint


def test_a_token_is_in_no_representation(file: Path) -> None:
    assert TEXT not in repr(AccessToken("the argument 'token'", TEXT))
    assert TEXT not in repr(AccessToken(f"in {file}", path=file))
    refused = AccessToken("$HANSE_TOKEN", TEXT).refusal_error(
        "token_expired", "the token of submitter ci has expired"
    )
    assert TEXT not in refused.message + refused.hint
    assert refused.status is ExitCode.FORBIDDEN
    assert "hanse access create" in refused.hint
    assert "$HANSE_TOKEN" in refused.hint


def test_members_are_not_given_the_token_of_who_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANSE_TOKEN", TEXT)
    monkeypatch.setenv("HANSE_HOME", "kept")
    given = daemon_environment()
    assert given["HANSE_HOME"] == "kept"
    assert not any(TEXT in value for value in given.values())


# --- hanse config set ---------------------------------------------------------------------------------------


def test_a_context_is_given_a_token_and_relieved_of_it(
    file: Path, tmp_path: Path, own_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "identity.pem").touch()
    save_context("near", Context("near", credentials=str(keys)))
    assert run(["config", "set", "near", "--token-file", str(file)]) == ExitCode.OK
    assert current_context("near")[1].token == str(file)
    assert TEXT not in own_config.read_text()
    assert run(["config", "view"]) == ExitCode.OK
    assert run(["config", "view", "--json"]) == ExitCode.OK
    assert run(["config", "set", "near", "--no-token"]) == ExitCode.OK
    assert current_context("near")[1].token == ""
    said = capsys.readouterr()
    assert str(file) in said.out
    assert TEXT not in said.out + said.err


def test_a_context_without_a_certificate_keeps_its_token(file: Path, tmp_path: Path) -> None:
    save_context("far", Context("far", credentials=str(tmp_path), token=str(file)))
    assert run(["config", "set", "far", "--no-token"]) == ExitCode.CONFIG
    assert current_context("far")[1].token == str(file)


def test_a_bad_token_file_changes_no_context(file: Path) -> None:
    save_context("near", Context("near"))
    file.chmod(0o644)
    assert run(["config", "set", "near", "--token-file", str(file)]) == ExitCode.CONFIG
    assert current_context("near")[1].token == ""


def test_a_new_context_needs_all_three(file: Path) -> None:
    assert run(["config", "set", "far", "--token-file", str(file)]) == ExitCode.USAGE
    assert run(["config", "set", "far", "--token-file", str(file), "--no-token"]) == ExitCode.USAGE
