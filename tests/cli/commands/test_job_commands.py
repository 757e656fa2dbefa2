"""Commands about jobs over prepared answers: submit, retry, jobs, show, why."""

import json
from typing import Any

import pytest

from hanse.cli.main import run
from hanse.client.exit_codes import ExitCode
from tests.client.canned import (
    Answer,
    CannedLeague,
    row,
    task,
)
from tests.client.canned_broker import broker

Captured = pytest.CaptureFixture[str]


def test_submitting(canned: CannedLeague, capsys: Captured) -> None:
    made = broker(canned)
    assert run(["submit", "-n", "3", "--", "/bin/echo", "-n", "--", "a b"]) == ExitCode.OK
    assert capsys.readouterr().out == "1-9  echo\n"
    (job,) = made.submitted
    assert job["command"] == ["/bin/echo", "-n", "--", "a b"]
    assert (job["name"], job["count"]) == ("echo", 3)
    assert run(["submit", "-q", "--client-id", "mine", "--", "ls"]) == ExitCode.OK
    assert capsys.readouterr().out == "1-9\n"
    assert made.submitted[1]["client_id"] == "mine"


@pytest.mark.parametrize(
    ("result", "status", "told"),
    [
        ({"refused": "no node of any cluster has that"}, ExitCode.UNPLACEABLE, "no node of any cluster"),
        ({"problems": [{"field": "cpus", "rule": "too many"}]}, ExitCode.BAD_JOB, "--cpus: too many"),
        ({"refused": "not safe yet", "unsure": True}, ExitCode.UNSURE, "--client-id mine"),
    ],
)
def test_what_the_league_does_not_take(
    canned: CannedLeague, result: dict[str, Any], status: ExitCode, told: str, capsys: Captured
) -> None:
    broker(canned).results = [result]
    assert run(["submit", "--client-id", "mine", "--", "ls"]) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err
    assert run(["submit", "--json", "--client-id", "mine", "--", "ls"]) == status
    (found,) = json.loads(capsys.readouterr().out)["results"]
    assert found["job"] is None
    assert found["client_id"] == "mine"


def test_trying_again(canned: CannedLeague, capsys: Captured) -> None:
    made = broker(canned, "failed", total=3, tasks=[task(0), task(1, "failed", code=1), task(2)])
    assert run(["retry", "1-7"]) == ExitCode.OK
    assert capsys.readouterr().out == "1-9  build (1 of 3 tasks of 1-7)\n"
    (group,) = made.submitted[0]["groups"]
    assert group["command"] == ["/usr/bin/env", "HANSE_TASK=1", "make", "all things"]
    made.row = row("1-7", "running")
    assert run(["retry", "1-7"]) == ExitCode.JOB_NOT_FINISHED
    made.row = row("1-7")
    assert run(["retry", "1-7"]) == ExitCode.FAILED
    assert len(made.submitted) == 1


def test_jobs(canned: CannedLeague, capsys: Captured) -> None:
    broker(canned, "failed", name="a [red]name[/]", tenant="physics")
    assert run(["jobs", "--all", "--state", "active", "--state", "failed"]) == ExitCode.OK
    said = capsys.readouterr().out
    for word in ("1-7", "a [red]name[/]", "physics", "failed", "1/1 (1 failed)", "1.0 s", "north"):
        assert word in said
    asked = canned.doors["broker-1"].asked
    assert [one.query["state"] for one in asked] == ["blocked", "queued", "placed", "running", "failed"]
    assert run(["jobs", "--json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"][0]["id"] == "1-7"
    assert (found["more"], found["silent"]) == (False, [])


def test_a_job_shown(canned: CannedLeague, capsys: Captured) -> None:
    tasks = [
        task(0),
        task(1, "failed", code=-9, note="out of memory"),
        task(2, "running", outcome="", code=None),
    ]
    broker(canned, "failed", total=3, tasks=tasks)
    assert run(["show", "1-7"]) == ExitCode.OK
    said = capsys.readouterr().out
    for word in (
        "1-7  build", "It [runs] in north.", "make 'all things'", "signal 9 (SIGKILL)", "out of memory",
        "north/0", "claimed room in view", "hanse retry 1-7", "3 ms CPU time", "4 KiB",
    ):  # fmt: skip
        assert word in said, word
    lines = [line.split() for line in said.split("\n")]
    order = [line[0] for line in lines if len(line) > 3 and line[1] in ("failed", "running", "succeeded")]
    assert order == ["1", "2", "0"]  # what needs a look first
    assert run(["show", "--tasks", "1", "1-7"]) == ExitCode.OK
    assert "and 2 more tasks" in capsys.readouterr().out
    assert run(["show", "--json", "1-7"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert found["usage"] == {"tasks": 3, "of": 3, "cpu": 3_000, "ran": 6_000, "memory": 4_096}
    assert [one["index"] for one in found["tasks"]] == [1, 2, 0]


def test_why(canned: CannedLeague, capsys: Captured) -> None:
    broker(canned)
    assert run(["why", "--decisions", "1-7"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert said.startswith("It [runs] in north.\n")
    assert "claimed room in view" in said
    assert "north: 3 (room)" in said


def test_a_list_that_is_watched(
    canned: CannedLeague, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    made = broker(canned, "running")
    drawn = 0

    def pause(_: float) -> None:
        nonlocal drawn
        drawn += 1
        if drawn == 1:
            canned.doors["broker-1"].reply = lambda _: Answer(503, {"error": {"message": "away"}})
        elif drawn == 2:
            made.row = row("1-7")
            canned.doors["broker-1"].reply = made
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("hanse.cli.commands.jobs.time.sleep", pause)
    assert run(["jobs", "--watch"]) == ExitCode.INTERRUPTED
    assert "succeeded" in capsys.readouterr().out
