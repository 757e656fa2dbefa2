"""Commands that cannot do what they are asked: without a league, without the job, with what is no job."""

import pytest

from hanse.cli.main import run
from hanse.client.contexts import Context, save_context
from hanse.client.exit_codes import ExitCode
from tests.client.canned import (
    CannedLeague,
    not_found,
)

Captured = pytest.CaptureFixture[str]


COMMANDS = [
    ["status"], ["clusters"], ["nodes"], ["jobs"], ["show", "1-7"], ["why", "1-7"], ["logs", "1-7"],
    ["wait", "--now", "1-7"], ["cancel", "1-7"], ["retry", "1-7"], ["submit", "--", "ls"],
    ["logs", "-f", "1-7.0"],
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_a_league_every_command_says_what_to_do(words: list[str], capsys: Captured) -> None:
    assert run(words) == ExitCode.UNAVAILABLE
    said = capsys.readouterr()
    assert said.out == ""
    assert "no league is running here" in said.err
    assert "hanse up" in said.err


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_league_that_is_down_is_named(words: list[str], canned: CannedLeague, capsys: Captured) -> None:
    canned.dead_broker("broker-1")
    save_context("mine", Context("mine", "at home", str(canned.person.directory), dict(canned.brokers)), True)
    assert run(words) == ExitCode.UNAVAILABLE
    said = capsys.readouterr().err
    assert "the league 'mine' is not running here" in said
    assert "hanse up" in said


@pytest.mark.parametrize("words", [["show"], ["why"], ["wait"], ["cancel"], ["retry"], ["logs"]])
def test_a_job_that_is_not_there(canned: CannedLeague, words: list[str], capsys: Captured) -> None:
    canned.broker("broker-1", not_found)
    assert run([*words, "1-7"]) == ExitCode.JOB_NOT_FOUND
    assert "there is no job 1-7" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["show"], ["why"], ["wait"], ["cancel"], ["retry"], ["logs"]])
@pytest.mark.parametrize("text", ["seven", "7", "01-7", "1-7.x"])
def test_what_is_no_job(words: list[str], text: str, capsys: Captured) -> None:
    assert run([*words, text]) == ExitCode.USAGE
    assert "is not a job id. An id looks like 1-7" in capsys.readouterr().err
