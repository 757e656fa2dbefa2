"""``hanse wait`` over prepared answers: how it ends, what it outlives, what it shows meanwhile."""

import json

import pytest

from hanse.cli import waiting
from hanse.cli.main import run
from hanse.client.exit_codes import ExitCode
from tests.client.canned import (
    Answer,
    CannedLeague,
    row,
)
from tests.client.canned_broker import broker

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("state", "reason", "status"),
    [
        ("succeeded", "", ExitCode.OK),
        ("failed", "", ExitCode.JOB_FAILED),
        ("cancelled", "asked for by admin/admin", ExitCode.JOB_CANCELLED),
        ("cancelled", "its deadline has passed", ExitCode.JOB_DEADLINE),
        ("running", "", ExitCode.JOB_NOT_FINISHED),
        ("queued", "", ExitCode.JOB_NOT_FINISHED),
    ],
)
def test_how_a_job_ended(
    canned: CannedLeague, state: str, reason: str, status: ExitCode, capsys: Captured
) -> None:
    broker(canned, state, cancel_reason=reason)
    assert run(["wait", "--now", "1-7"]) == status
    assert state in capsys.readouterr().out
    if status is not ExitCode.JOB_NOT_FINISHED:
        assert run(["wait", "--json", "1-7"]) == status
        assert json.loads(capsys.readouterr().out)["jobs"][0]["state"] == state
        assert run(["wait", "-q", "1-7"]) == status
        assert capsys.readouterr().out == ""
        assert run(["submit", "--wait", "--", "ls"]) == ExitCode.JOB_NOT_FOUND  # 1-9 is not known


def test_the_core_says_deadline() -> None:
    """The reason is a sentence of the broker's: if it is worded anew, the status must not change."""
    from inspect import getsource

    from hanse.core.broker import job_lifecycle

    assert f'"its {waiting.DEADLINE_REASON} has passed"' in getsource(job_lifecycle)


def test_the_first_that_did_not_succeed_decides(canned: CannedLeague) -> None:
    states = {"1-1": "succeeded", "1-2": "cancelled", "1-3": "failed"}
    canned.broker(
        "broker-1", lambda asked: Answer(200, row(asked.path.split("/")[3], states[asked.path.split("/")[3]]))
    )
    assert run(["wait", "1-1"]) == ExitCode.OK
    assert run(["wait", "1-1", "1-2", "1-3"]) == ExitCode.JOB_CANCELLED
    assert run(["wait", "1-3", "1-2"]) == ExitCode.JOB_FAILED


def test_time_is_over(canned: CannedLeague, capsys: Captured) -> None:
    broker(canned, "running")
    assert run(["wait", "--timeout", "10ms", "1-7"]) == ExitCode.TIMEOUT
    said = capsys.readouterr().err
    assert "has not ended in time: it is running" in said
    assert "hanse wait 1-7" in said


def test_waiting_outlives_a_restart_of_the_league(
    canned: CannedLeague, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS_MAX", 0.01)
    made = broker(canned, "running")
    turns = [
        Answer(503, {"error": {}}),
        Answer(200, made.row),
        Answer(503, {"error": {}}),
        Answer(200, row("1-7")),
    ]
    canned.doors["broker-1"].reply = lambda _: turns.pop(0)
    assert run(["wait", "-q", "1-7"]) == ExitCode.OK
    assert turns == []


def test_waiting_for_a_league_that_stays_away_ends(
    canned: CannedLeague, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS_MAX", 0.01)
    monkeypatch.setattr(waiting, "SILENCE_SECONDS_MAX", 0.05)
    canned.dead_broker("broker-1")
    assert run(["wait", "1-7"]) == ExitCode.UNAVAILABLE


def test_progress_is_shown_to_a_watcher(
    canned: CannedLeague, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    made = broker(canned, "running")
    turns = [made.row, row("1-7")]
    canned.doors["broker-1"].reply = lambda _: Answer(200, turns.pop(0))
    monkeypatch.setattr(waiting, "is_on_terminal", lambda: True)
    assert run(["wait", "1-7"]) == ExitCode.OK
    assert "build succeeded" in capsys.readouterr().out
    asked = canned.doors["broker-1"].asked
    assert [one.query["timeout"] for one in asked] == [str(waiting.PROGRESS_SECONDS)] * 2


def test_who_stops_waiting_is_told_that_the_job_goes_on(
    canned: CannedLeague, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    broker(canned, "running")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting, "_wait_for_job", interrupt)
    assert run(["wait", "1-7"]) == ExitCode.INTERRUPTED
    assert "1-7 goes on" in capsys.readouterr().err
