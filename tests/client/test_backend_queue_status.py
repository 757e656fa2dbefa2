"""What ``hanse why`` and ``hanse show`` say of placed tasks that wait in a queue of their cluster's own."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from hanse.cli.main import run
from hanse.client.backend_queue_status import REASONS_MAX
from hanse.client.exit_codes import ExitCode
from hanse.security.identity import Role
from hanse.security.wall_time import wall_now
from tests.client.canned import Answer, Asked, CannedLeague, not_found, task
from tests.client.canned_broker import broker

Captured = pytest.CaptureFixture[str]
LONG_AGO = 1_000_000
RESOURCES = "Slurm says Resources (there is no room for it yet)"
PRIORITY = "Slurm says Priority (other jobs come first)"
FIRST = "It [runs] in north.\n"
"""What the broker says."""


def wait(index: int = 0, reason: str = RESOURCES, since: int = LONG_AGO, **changed: Any) -> dict[str, Any]:
    """A wait as a door writes it."""
    return {
        "task": f"1-7.{index}", "attempt": 1, "node": 0, "place": "n1", "since": since, "reason": reason,
        **changed,
    }  # fmt: skip


def waits(*some: dict[str, Any], elsewhere: tuple[int, ...] = ()) -> Any:
    """A cluster's door where these wait."""

    def reply(asked: Asked) -> Answer:
        assert asked.path == "/v1/waits/1-7"
        return Answer(200, {"waits": some, "next": None, "elsewhere": elsewhere})

    return reply


def placed(canned: CannedLeague, count: int = 1, **changed: Any) -> None:
    """A broker with one job, all of whose tasks are placed."""
    tasks = [task(index, "placed", outcome="", code=None, **changed) for index in range(count)]
    broker(canned, "running", total=count, tasks=tasks)


def test_a_placed_task_that_waits_says_where_since_when_and_why(
    canned: CannedLeague, capsys: Captured
) -> None:
    placed(canned)
    now = wall_now()
    canned.cluster("north", waits(wait(since=now)))
    today = f"{datetime.fromtimestamp(now // 1_000_000, UTC):%H:%M:%S}"
    assert run(["why", "1-7"]) == ExitCode.OK
    said = capsys.readouterr().out.replace(f"{datetime.fromtimestamp(now // 1_000_000, UTC):%Y-%m-%d} ", "")
    assert said == (
        f"{FIRST}Task 1-7.0 is placed in north on the node n1 and waits in a queue there since {today}: "
        f"{RESOURCES}.\n"
    )


def test_the_page_of_a_job_says_it_too(canned: CannedLeague, capsys: Captured) -> None:
    placed(canned)
    canned.cluster("north", waits(wait(place="")))
    assert run(["show", "--json", "1-7"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["sentences"][1:] == [
        f"Task 1-7.0 is placed in north and waits in a queue there since 1970-01-01 00:00:01: {RESOURCES}."
    ]


def test_tasks_are_told_together_by_reason_most_first(canned: CannedLeague, capsys: Captured) -> None:
    placed(canned, 6)
    some = [wait(index, PRIORITY, LONG_AGO * (9 - index)) for index in range(1, 6)]
    canned.cluster("north", waits(wait(0), *some))
    assert run(["why", "1-7"]) == ExitCode.OK
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first == (
        "5 tasks (1-7.1, 1-7.2, 1-7.3, ...) are placed in north and wait in a queue there, the first since "
        f"1970-01-01 00:00:04: {PRIORITY}."
    )
    assert second == (
        "Task 1-7.0 is placed in north on the node n1 and waits in a queue there since 1970-01-01 00:00:01: "
        f"{RESOURCES}."
    )


def test_more_reasons_than_anybody_reads_are_counted(canned: CannedLeague, capsys: Captured) -> None:
    placed(canned, REASONS_MAX + 2)
    canned.cluster("north", waits(*(wait(index, f"reason {index}") for index in range(REASONS_MAX + 2))))
    assert run(["why", "1-7"]) == ExitCode.OK
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1 + REASONS_MAX + 1
    assert said[-1] == "2 more wait there for other reasons."


def test_an_attempt_that_the_league_has_given_up_is_not_told(canned: CannedLeague, capsys: Captured) -> None:
    placed(canned, attempt=2)
    canned.cluster("north", waits(wait()))
    assert run(["why", "1-7"]) == ExitCode.OK
    assert capsys.readouterr().out == FIRST


def test_no_cluster_is_asked_about_tasks_that_are_not_placed(canned: CannedLeague, capsys: Captured) -> None:
    broker(canned, "running", tasks=[task(0, "running", outcome="", code=None)])
    door = canned.cluster("north", waits(wait()))
    assert run(["why", "1-7"]) == ExitCode.OK
    assert (capsys.readouterr().out, door.asked) == (FIRST, [])


def test_a_cluster_of_an_earlier_version_says_nothing(canned: CannedLeague, capsys: Captured) -> None:
    placed(canned)
    canned.cluster("north", not_found)
    assert run(["why", "1-7"]) == ExitCode.OK
    assert capsys.readouterr().out == FIRST


@pytest.mark.parametrize("silent", [True, False])
def test_a_cluster_that_does_not_answer_leaves_the_rest_to_be_told(
    canned: CannedLeague, capsys: Captured, silent: bool
) -> None:
    placed(canned)
    refused = Answer(403, {"error": {"code": "forbidden", "message": "not for you", "hint": ""}})
    door = canned.cluster("north", lambda _: refused)
    if silent:
        door.close()
        del canned.doors["north"]
    assert run(["why", "1-7"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert said.startswith(f"{FIRST}It is unknown whether they wait in a queue of north: no answer (")
    assert ("not for you" in said) != silent


def test_a_runner_on_another_machine_is_asked_itself(canned: CannedLeague, capsys: Captured) -> None:
    placed(canned)
    runner = canned.add(Role.RUNNER, "far", waits(wait()))
    there = (("Location", f"https://{runner.address}/v1/waits/1-7"), ("X-Hanse-Runner", "far"))

    def warden(asked: Asked) -> Answer:
        return Answer(307, {}, there) if "node" in asked.query else waits(elsewhere=(4,))(asked)

    canned.cluster("north", warden)
    assert run(["why", "1-7"]) == ExitCode.OK
    assert RESOURCES in capsys.readouterr().out
    assert [asked.query["node"] for asked in runner.asked] == ["4"]
