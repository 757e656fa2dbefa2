"""Commands of the live league over prepared answers: what they print, and with which status they end."""

import json
from typing import Any

import pytest

from hanse.cli import waiting
from hanse.cli.main import run
from hanse.client.contexts import Context, save_context
from hanse.client.exit_codes import ExitCode
from tests.client.canned import (
    AMOUNTS,
    Answer,
    CannedLeague,
    cluster_answer,
    cluster_with,
    not_found,
    row,
    task,
)
from tests.client.canned_broker import broker

Captured = pytest.CaptureFixture[str]

# --- nobody there ------------------------------------------------------------------------------------------

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


def test_a_drain_without_its_warden(canned: CannedLeague, capsys: Captured) -> None:
    door = canned.cluster("north", not_found)
    door.close()
    del canned.doors["north"]
    assert run(["drain", "north/3"]) == ExitCode.UNAVAILABLE
    assert "the cluster north" in capsys.readouterr().err


# --- ends as statuses --------------------------------------------------------------------------------------


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


# --- submitting --------------------------------------------------------------------------------------------


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


# --- pictures ----------------------------------------------------------------------------------------------


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


# --- the league --------------------------------------------------------------------------------------------


def league_of(*brokers: str, reachable: bool = True, **more: Any) -> Any:
    answer = {
        **more,
        "league": "tested", "broker": "broker-1", "version": "1",
        "brokers": [{"name": name, "door": "somewhere", "alive": True} for name in brokers],
        "clusters": [{"name": "north", "door": "", "reachable": reachable, "seen_seconds": 0.25, "nodes": 2,
                      "capacity": AMOUNTS, "free": {**AMOUNTS, "cpu": 500}}],
        "jobs": {"running": 2, "failed": 1},
    }  # fmt: skip
    nodes = {
        "nodes": [{"cluster": "north", "node": 0, "capacity": AMOUNTS, "free": AMOUNTS, "attributes": {}}]
    }
    return lambda asked: Answer(200, answer if asked.path == "/v1/league" else nodes)


def test_status_names_members_that_may_not_act_or_have_another_file(
    canned: CannedLeague, capsys: Captured
) -> None:
    names = ("broker-1", "broker-2")
    canned.broker("broker-1", league_of(*names, file_version=3, fenced={"broker-9": "it lost records"}))
    other = {"north": "it has version 3"}
    canned.broker("broker-2", league_of(*names, file_version=4, other_files=other, fenced={"north": "older"}))
    canned.cluster("north", cluster_answer)
    assert run(["status"]) == ExitCode.FAILED
    said = capsys.readouterr()
    assert "may not act (another league file)" in " ".join(said.out.split())
    assert "broker-9 may not act: it lost records" in said.err
    assert "the league file is version 4, but north: it has version 3" in said.err
    assert run(["status", "--json"]) == ExitCode.FAILED
    told = json.loads(capsys.readouterr().out)
    assert told["fenced"] == {"broker-9": "it lost records", "north": "older"}
    assert (told["file_version"], told["other_files"]) == (4, other)


def test_status(canned: CannedLeague, capsys: Captured) -> None:
    canned.broker("broker-1", league_of("broker-1", "broker-2"))
    canned.broker("broker-2", league_of("broker-1", "broker-2"))
    canned.cluster("north", cluster_answer)
    assert run(["status"]) == ExitCode.OK
    said = capsys.readouterr().out
    for word in (
        "league tested",
        "4 running",
        "2 failed",
        "draining (1 of 2)",
        "0.5/8",
        "1/1 fpga",
        "250 ms ago",
    ):
        assert word in said, word
    canned.doors.pop("broker-2").close()
    assert run(["status", "--json"]) == ExitCode.FAILED
    found = json.loads(capsys.readouterr().out)
    assert [one["answers"] for one in found["brokers"]] == [True, False]
    assert (found["clusters"][0]["nodes_draining"], found["clusters"][0]["running"]) == (1, 3)
    assert found["jobs"]["running"] == 2


def test_status_of_a_league_with_a_lost_cluster(canned: CannedLeague, capsys: Captured) -> None:
    canned.broker("broker-1", league_of("broker-1", reachable=False))
    assert run(["status"]) == ExitCode.FAILED
    assert "out of reach" in capsys.readouterr().out


def test_clusters_and_nodes(canned: CannedLeague, capsys: Captured) -> None:
    canned.broker("broker-1", league_of("broker-1"))
    door = canned.cluster("north", cluster_answer)
    assert run(["clusters"]) == ExitCode.OK
    assert "no cgroups" in capsys.readouterr().err
    assert run(["nodes", "north"]) == ExitCode.OK
    said = capsys.readouterr().out
    for word in ("north/0", "draining", "zone=a", "north/1", "down"):
        assert word in said, word
    assert run(["nodes", "south"]) == ExitCode.USAGE
    assert " withheld" not in said
    door.close()
    del canned.doors["north"]
    assert run(["nodes"]) == ExitCode.OK
    said_both = capsys.readouterr()
    assert "as last heard of" in said_both.out
    assert "north does not answer" in said_both.err


def test_nodes_that_others_keep_from_the_league_say_why(canned: CannedLeague, capsys: Captured) -> None:
    drained = "in Slurm it is IDLE+DRAIN (fans are loud)"
    reasons = [drained] * 10 + ["Slurm does not list it", ""]
    rows = [
        {"node": at, "attributes": {}, "up": True, "draining": False, "withheld": why}
        for at, why in enumerate(reasons)
    ]
    canned.broker("broker-1", league_of("broker-1"))
    canned.cluster("north", lambda asked: cluster_with(asked, *rows))
    assert run(["nodes", "north"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert said.count(" withheld ") == 11
    named = ", ".join(f"north/{at}" for at in range(8))
    assert said.splitlines()[-2:] == [f"{named} and 2 more: {drained}.", "north/10: Slurm does not list it."]
    assert run(["clusters"]) == ExitCode.OK
    assert "withheld (11 of 2)" in capsys.readouterr().out


def test_draining(canned: CannedLeague, capsys: Captured) -> None:
    door = canned.cluster("north", cluster_answer)
    assert run(["drain", "north/1", "north/0"]) == ExitCode.OK
    assert capsys.readouterr().out == "north/1, north/0 takes no new tasks\n"
    assert run(["drain", "north/1", "north"]) == ExitCode.OK
    assert run(["undrain", "north"]) == ExitCode.OK
    assert capsys.readouterr().out.endswith("north is open again\n")
    assert [one.body for one in door.asked] == [
        {"nodes": [1, 0], "drain": True}, {"whole": True, "drain": True}, {"whole": True, "drain": False}
    ]  # fmt: skip
    assert run(["drain", "north/9"]) == ExitCode.USAGE
    assert "hanse nodes north" in capsys.readouterr().err
    for place in ("north/x", "/1", "north/-1"):
        assert run(["drain", place]) == ExitCode.USAGE


# --- plans -------------------------------------------------------------------------------------------------


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


# --- somebody watches --------------------------------------------------------------------------------------


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
