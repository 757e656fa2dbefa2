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


def outlook(
    starting: int, waiting: int, *sentences: str, groups: tuple[str, ...] = ("main",)
) -> dict[str, Any]:
    parts = [
        {"group": name, "tasks": starting + waiting, "clusters": {}, "waiting": waiting, "blocked": 0}
        for name in groups
    ]
    return {
        "starting": starting, "waiting": waiting, "blocked": 0, "groups": parts, "sentences": list(sentences)
    }  # fmt: skip


def plan(starts_now: bool, p50: int | None, **more: Any) -> dict[str, Any]:
    chosen = {"cluster": "north", "slots": 2, "score": 900, "reason": "north has room for 2", "chosen": True}
    start = {"p10": p50, "p50": p50, "p90": None if p50 is None else 3 * p50}
    return {
        "starts_now": starts_now,
        "candidates": [chosen],
        "start": start,
        "unknown": "",
        "caveats": ["Roughly."],
        "outlook": outlook(int(starts_now), int(not starts_now)),
        **more,
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


@pytest.mark.parametrize(
    ("starts_now", "counts", "said"),
    [
        (True, (6, 6), ["6 of 12 tasks would start now in north.", "Something can start when it rains."]),
        (False, (0, 12), ["The first task would wait about 2.0 s", "All 12 tasks would wait."]),
    ],
)
def test_a_plan_of_several_tasks_speaks_of_all(
    canned: CannedLeague,
    starts_now: bool,
    counts: tuple[int, int],
    said: list[str],
    tmp_path: Any,
    capsys: Captured,
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: ls\ncount: 12\n")
    found = outlook(*counts, *said[starts_now ^ 1 :], groups=("fetch", "link"))
    answer = plan(starts_now, 0 if starts_now else 2_000_000, outlook=found)
    canned.broker("broker-1", lambda _: Answer(200, answer))
    assert run(["plan", str(file)]) == (ExitCode.OK if starts_now else ExitCode.FAILED)
    printed = " ".join(capsys.readouterr().out.split())
    for sentence in [*said, "Group fetch:"]:
        assert sentence in printed
    assert "It would" not in printed


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
