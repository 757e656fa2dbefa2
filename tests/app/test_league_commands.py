"""Commands of the live league over prepared answers: what they print, and with which status they end."""

import json
from typing import Any

import msgspec
import pytest

from hanse.app import waiting
from hanse.app.cli import run
from hanse.app.contexts import Context, save_context
from hanse.app.exit_codes import ExitCode
from hanse.live.reads.rows import GroupDetail, JobDetail, JobRow
from hanse.model.check import job_from_data
from hanse.model.job import JobSpec
from tests.app.canned import Answer, Asked, CannedLeague, not_found, row, task

Captured = pytest.CaptureFixture[str]


def detail(found: dict[str, Any], form: dict[str, Any]) -> bytes:
    """A job's detail as a door writes it."""
    spec = job_from_data(form)
    assert isinstance(spec, JobSpec), spec
    groups = tuple(
        GroupDetail(
            name=group.name, count=group.count, ask=group.ask, ask_max=None, where="", needs=(), duration=None,
            command=("make", "all things"), states={found["state"]: group.count},
        )
        for group in spec.groups
    )  # fmt: skip
    return msgspec.json.encode(JobDetail(row=msgspec.convert(found, JobRow), spec=spec, groups=groups))


class Broker:
    """Answers like a broker with one job."""

    def __init__(self, found: dict[str, Any], tasks: list[dict[str, Any]], form: dict[str, Any]) -> None:
        self.row, self.tasks, self.form = found, tasks, form
        self.submitted: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] | None = None

    def __call__(self, asked: Asked) -> Answer:
        job = f"/v1/jobs/{self.row['id']}"
        if asked.method == "POST" and asked.path == "/v1/jobs":
            self.submitted += asked.body["jobs"]
            given = self.results or [{"job": f"1-{9 + at}"} for at, _ in enumerate(asked.body["jobs"])]
            return Answer(200, {"results": given})
        if asked.path == "/v1/jobs":
            return Answer(200, {"jobs": [self.row], "next": None})
        if asked.path == f"{job}/tasks":
            after, limit = int(asked.query.get("after", -1)), int(asked.query["limit"])
            left = [one for one in self.tasks if one["index"] > after]
            page = left[:limit]
            return Answer(200, {"tasks": page, "next": str(page[-1]["index"]) if len(left) > limit else None})
        if asked.path == f"{job}/why":
            said = {"at": 2_000_000, "broker": "broker-1", "group": "main", "answered": "placed", "tasks": 3,
                    "reason": "claimed room in view", "considered": [["north", 3, "room"]]}  # fmt: skip
            return Answer(200, {"sentences": ["It [runs] in north."], "decisions": [said]})
        if asked.path == f"{job}/wait":
            return Answer(200, self.row)
        if asked.path == f"{job}/cancel":
            return Answer(200, {"job": self.row["id"]})
        if asked.path == job:
            return Answer(200, detail(self.row, self.form))
        return not_found(asked)


def broker(canned: CannedLeague, state: str = "succeeded", **changed: Any) -> Broker:
    """A league of one broker with the job 1-7."""
    count = changed.pop("total", 1)
    tasks = changed.pop("tasks", [task(index, state) for index in range(count)])
    found = row("1-7", state, total=count, **changed)
    made = Broker(found, tasks, {"name": "build", "count": count, "command": ["make", "all things"]})
    canned.broker("broker-1", made)
    return made


# --- nobody there ------------------------------------------------------------------------------------------

COMMANDS = [
    ["status"], ["clusters"], ["nodes"], ["jobs"], ["show", "1-7"], ["why", "1-7"], ["logs", "1-7"],
    ["wait", "--now", "1-7"], ["cancel", "1-7"], ["retry", "1-7"], ["submit", "--", "ls"], ["logs", "-f", "1-7.0"],
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

    from hanse.core import careers

    assert f'"its {waiting.DEADLINE_REASON} has passed"' in getsource(careers)


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
    assert "is no job; one looks like 1-7" in capsys.readouterr().err


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

AMOUNTS = {"cpu": 8_000, "memory": 16 << 30, "gpu": 2, "custom": {"fpga": 1}}


def league_of(*brokers: str, reachable: bool = True) -> Any:
    answer = {
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


def cluster_answer(asked: Asked) -> Answer:
    nodes = [
        {"node": 0, "capacity": AMOUNTS, "free": AMOUNTS, "attributes": {"zone": "a"}, "up": True, "draining": True},
        {"node": 1, "capacity": AMOUNTS, "free": AMOUNTS, "attributes": {}, "up": False, "draining": False},
    ]  # fmt: skip
    body = asked.body or {}
    if asked.path == "/v1/drain" and 9 in body["nodes"]:
        return Answer(422, {"error": {"code": "bad_request", "message": "no", "hint": ""}})
    told = {
        "cluster": "north",
        "nodes": nodes,
        "running": 3,
        "backend": "process",
        "warnings": ["no cgroups"],
    }
    return Answer(200, told if asked.path == "/v1/cluster" else {"cluster": "north", **body})


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
    door.close()
    del canned.doors["north"]
    assert run(["nodes"]) == ExitCode.OK
    said_both = capsys.readouterr()
    assert "as last heard of" in said_both.out
    assert "north does not answer" in said_both.err


def test_draining(canned: CannedLeague, capsys: Captured) -> None:
    door = canned.cluster("north", cluster_answer)
    assert run(["drain", "north/1", "north/0"]) == ExitCode.OK
    assert capsys.readouterr().out == "north/1, north/0 takes no new tasks\n"
    assert run(["drain", "north/1", "north"]) == ExitCode.OK
    assert run(["undrain", "north"]) == ExitCode.OK
    assert capsys.readouterr().out.endswith("north is open again\n")
    assert [one.body for one in door.asked] == [
        {"nodes": [1, 0], "drain": True}, {"nodes": [], "drain": True}, {"nodes": [], "drain": False}
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
    assert run(["plan", str(file)]) == ExitCode.UNTOLD
    assert "Traceback" not in capsys.readouterr().err


def test_a_plan_without_a_league(tmp_path: Any) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: ls\n")
    assert run(["plan", str(file)]) == ExitCode.UNTOLD


# --- output ------------------------------------------------------------------------------------------------


def outputs(known: dict[tuple[str, str], bytes]) -> Any:
    def reply(asked: Asked) -> Answer:
        name = asked.path.rpartition("/")[2]
        found = known.get((name, asked.query["stream"]))
        return not_found(asked) if found is None else Answer(200, found[int(asked.query["offset"]) :])

    return reply


def test_logs_go_where_the_task_wrote_them(canned: CannedLeague, capfdbinary: Any) -> None:
    broker(canned, total=2)
    known = {(f"1-7.{index}", stream): f"{stream} {index}\nlast".encode() for index in (0, 1)
             for stream in ("stdout", "stderr")}  # fmt: skip
    door = canned.cluster("north", outputs(known))
    assert run(["logs", "1-7"]) == ExitCode.OK
    said = capfdbinary.readouterr()
    assert said.out == b"[0] stdout 0\n[0] last\n[1] stdout 1\n[1] last\n"
    assert said.err == b"[0] stderr 0\n[0] last\n[1] stderr 1\n[1] last\n"
    assert door.asked[0].query == {
        "attempt": "1",
        "stream": "stdout",
        "offset": "0",
        "follow": "0",
        "node": "0",
    }
    assert run(["logs", "1-7.1", "--stderr"]) == ExitCode.OK
    said = capfdbinary.readouterr()
    assert (said.out, said.err) == (b"stderr 1\nlast", b"")
    assert run(["logs", "-f", "--stdout", "1-7"]) == ExitCode.OK
    followed = capfdbinary.readouterr().out
    assert sorted(followed.split(b"\n")) == [b"", b"[0] last", b"[0] stdout 0", b"[1] last", b"[1] stdout 1"]


def test_logs_that_are_not_there(canned: CannedLeague, capsys: Captured) -> None:
    made = broker(canned)
    canned.cluster("north", not_found)
    assert run(["logs", "1-7"]) == ExitCode.JOB_NOT_FOUND
    assert "there is no output of 1-7" in capsys.readouterr().err
    assert run(["logs", "1-7.5"]) == ExitCode.JOB_NOT_FOUND
    assert "has no task 5" in capsys.readouterr().err
    made.tasks = [task(0, "queued", attempt=0, cluster="", node=None)]
    assert run(["logs", "1-7"]) == ExitCode.JOB_NOT_FOUND
    assert "has not started yet" in capsys.readouterr().err


def test_an_earlier_attempt_is_looked_for_everywhere(canned: CannedLeague, capfdbinary: Any) -> None:
    broker(canned, tasks=[task(0, attempt=3)])
    canned.cluster("north", not_found)
    south = canned.cluster("south", outputs({("1-7.0", "stdout"): b"before\n"}))
    assert run(["logs", "--attempt", "1", "--stdout", "1-7"]) == ExitCode.OK
    assert capfdbinary.readouterr().out == b"before\n"
    assert south.asked[-1].query["attempt"] == "1"


def test_following_waits_for_the_start_and_sees_every_attempt(canned: CannedLeague, capfdbinary: Any) -> None:
    made = broker(canned, "queued", tasks=[task(0, "queued", attempt=0, cluster="", node=None)])
    plain = made.__call__
    looks = 0

    def reply(asked: Asked) -> Answer:
        nonlocal looks
        if asked.path.endswith("/tasks"):
            looks += 1
            if looks == 3:
                made.tasks = [task(0, "running", attempt=1, outcome="", code=None)]
            if looks == 5:
                made.tasks, made.row = [task(0, attempt=2)], row("1-7")
        return plain(asked)

    canned.doors["broker-1"].reply = reply
    door = canned.cluster("north", lambda asked: Answer(200, f"attempt {asked.query['attempt']}\n".encode()))
    assert run(["logs", "-f", "--stdout", "1-7"]) == ExitCode.OK
    assert capfdbinary.readouterr().out == b"attempt 1\nattempt 2\n"
    assert all(asked.query["follow"] == "1" for asked in door.asked)


def test_an_output_that_breaks_off_goes_on_where_it_was(canned: CannedLeague, capfdbinary: Any) -> None:
    made = broker(canned, "running", tasks=[task(0, "running", outcome="", code=None)])
    whole = b"one\ntwo\nthree\n"
    turns = 0

    def reply(asked: Asked) -> Answer:
        nonlocal turns
        turns += 1
        if turns == 1:  # promises more than it sends
            return Answer(200, whole[:6], (("X-Cut", "1"),))
        made.row, made.tasks = row("1-7"), [task(0)]
        return Answer(200, whole[int(asked.query["offset"]) :])

    canned.cluster("north", reply)
    assert run(["logs", "-f", "--stdout", "1-7"]) == ExitCode.OK
    assert capfdbinary.readouterr().out == whole
