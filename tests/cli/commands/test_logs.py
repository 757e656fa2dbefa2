"""``hanse logs`` over prepared answers: where output comes from, where it goes, how it is followed."""

from typing import Any

import pytest

from hanse.cli.commands import logs
from hanse.cli.main import run
from hanse.client.exit_codes import ExitCode
from tests.client.canned import Answer, Asked, CannedLeague, cluster_answer, not_found, row, task
from tests.client.canned_broker import broker

Captured = pytest.CaptureFixture[str]


def outputs(known: dict[tuple[str, str], bytes]) -> Any:
    def reply(asked: Asked) -> Answer:
        if asked.path == "/v1/cluster":
            return cluster_answer(asked)
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
    canned.cluster("north", outputs({}))
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


def test_of_a_large_job_only_what_runs_is_looked_at_until_its_end(
    canned: CannedLeague, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    monkeypatch.setattr(logs, "PAGE_ROWS", 1)
    ended, running = task(0), task(1, "running", outcome="", code=None)
    made = broker(canned, "running", total=2, tasks=[ended, running])
    plain = made.__call__
    looked: list[str] = []

    def reply(asked: Asked) -> Answer:
        if not asked.path.endswith("/tasks"):
            return plain(asked)
        looked.append(asked.query.get("state", ""))
        if looked == ["running", "running"]:
            made.row = row("1-7", total=2)
        shown = [running] if looked[-1] == "running" else [ended, task(1)]
        return Answer(200, {"tasks": shown, "next": None})

    canned.doors["broker-1"].reply = reply
    canned.cluster("north", lambda asked: Answer(200, f"{asked.path[-1]}\n".encode()))
    assert run(["logs", "-f", "--stdout", "1-7"]) == ExitCode.OK
    assert capfdbinary.readouterr().out == b"[1] 1\n[0] 0\n"
    assert looked[:2] == ["running", "running"]
    assert set(looked[2:]) == {""}


def test_an_attempt_whose_output_never_came_is_given_up_for_a_later_one(
    canned: CannedLeague, capfdbinary: Any
) -> None:
    made = broker(canned, "running", tasks=[task(0, "running", outcome="", code=None)])

    def reply(asked: Asked) -> Answer:
        if asked.query["attempt"] == "2":
            return Answer(200, b"second\n")
        made.row, made.tasks = row("1-7"), [task(0, attempt=2)]  # it has moved meanwhile
        return not_found(asked)

    canned.cluster("north", reply)
    assert run(["logs", "-f", "--stdout", "1-7"]) == ExitCode.OK
    assert capfdbinary.readouterr().out == b"second\n"
