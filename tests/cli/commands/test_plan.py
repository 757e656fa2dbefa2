"""``hanse plan`` over prepared answers: what it prints, and with which status it ends."""

import json
from typing import Any

import pytest

from hanse.cli.main import run
from hanse.client.exit_codes import ExitCode
from tests.client.canned import (
    Answer,
    CannedLeague,
    not_found,
)

Captured = pytest.CaptureFixture[str]


def plan(starts_now: bool, p50: int | None) -> dict[str, Any]:
    chosen = {"cluster": "north", "slots": 2, "score": 900, "reason": "north has room for 2", "chosen": True}
    start = {"p10": p50, "p50": p50, "p90": None if p50 is None else 3 * p50}
    return {
        "starts_now": starts_now,
        "candidates": [chosen],
        "start": start,
        "unknown": "",
        "caveats": ["Roughly."],
    }


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        (plan(True, 0), ExitCode.OK, "It would start now, in north."),
        (
            plan(False, 2_000_000),
            ExitCode.FAILED,
            "about 2.0 s, between 2.0 s and 6.0 s, most likely in north",
        ),
        (plan(False, None), ExitCode.FAILED, "how long is unknown"),
    ],
)
def test_plans(
    canned: CannedLeague, answer: dict[str, Any], status: ExitCode, told: str, tmp_path: Any, capsys: Captured
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: ls\n")
    door = canned.broker("broker-1", lambda _: Answer(200, answer))
    assert run(["plan", str(file)]) == status
    said = capsys.readouterr().out
    assert told in said
    assert "north has room for 2" in said
    assert "90 %" in said
    assert (door.asked[0].path, door.asked[0].body) == ("/v1/plan", {"command": "ls"})
    assert run(["plan", "--json", str(file)]) == status
    assert json.loads(capsys.readouterr().out) == answer


@pytest.mark.parametrize("text", ["cpus: x\n", "command: a\n---\ncommand: b\n", None])
def test_a_plan_that_cannot_be_told(
    canned: CannedLeague, text: str | None, tmp_path: Any, capsys: Captured
) -> None:
    canned.broker("broker-1", not_found)
    file = tmp_path / "job.yaml"
    if text is not None:
        file.write_text(text)
    assert run(["plan", str(file)]) == ExitCode.UNDETERMINED
    assert "Traceback" not in capsys.readouterr().err


def test_a_plan_without_a_league(tmp_path: Any) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: ls\n")
    assert run(["plan", str(file)]) == ExitCode.UNDETERMINED
