"""A league of real daemons runs real processes: what users do with it every day."""

import time
from collections.abc import Iterator

import msgspec
import pytest

from tests.live.harness import LiveLeague, open_directory, running

LEAGUE = """
brokers: [{name: b1}, {name: b2}]
clusters:
  - name: north
    nodes:
      - {count: 2, cpus: 2, memory: 256MiB, attributes: {zone: a, arch: arm64}}
  - name: south
    nodes:
      - {count: 2, cpus: 1, memory: 256MiB, attributes: {zone: b, arch: x86}}
  - name: far
    runners: [{name: far-1}]
    nodes:
      - {cpus: 1, memory: 64MiB, attributes: {zone: far}, runner: far-1}
"""


@pytest.fixture(scope="module")
def live() -> Iterator[LiveLeague]:
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        yield league


def test_a_command_runs_and_its_output_comes_back(live: LiveLeague) -> None:
    job = live.submit({"name": "hello", "command": "echo out; echo err >&2", "env": {"WHO": "me"}})
    assert live.wait(job)["state"] == "succeeded"
    assert live.output(job) == "out\n"
    assert live.output(job, stream="stderr") == "err\n"


def test_a_task_knows_who_it_is(live: LiveLeague) -> None:
    job = live.submit({"count": 3, "command": 'echo "$HANSE_JOB $HANSE_TASK $HANSE_CLUSTER $GREETING"',
                       "env": {"GREETING": "hi"}})  # fmt: skip
    assert live.wait(job)["succeeded"] == 3
    for task in live.tasks(job):
        assert live.output(job, task["index"]) == f"{job} {task['index']} {task['cluster']} hi\n"


def test_exit_codes_and_signals_are_told(live: LiveLeague) -> None:
    job = live.submit({"command": "exit 7"})
    assert live.wait(job)["state"] == "failed"
    assert live.tasks(job)[0]["code"] == 7
    job = live.submit({"command": "kill -9 $$"})
    assert live.wait(job)["state"] == "failed"
    assert live.tasks(job)[0]["code"] == -9
    job = live.submit({"command": ["/no/such/program"]})
    assert live.wait(job)["state"] == "failed"
    assert live.tasks(job)[0]["note"]


def test_constraints_choose_the_cluster(live: LiveLeague) -> None:
    for where, cluster in (('arch == "arm64"', "north"), ('zone == "b"', "south"), ('zone == "far"', "far")):
        job = live.submit({"command": "true", "where": where})
        assert live.wait(job)["clusters"] == [cluster]
    job = live.submit({"command": "true", "clusters": {"deny": ["north", "far"]}})
    assert live.wait(job)["clusters"] == ["south"]


def test_a_failed_task_is_tried_again(live: LiveLeague) -> None:
    with open_directory() as directory:
        directory.chmod(0o777)
        flag = directory / "flag"
        job = live.submit({"retries": 2, "command": f"test -e {flag} || {{ touch {flag}; exit 1; }}"})
        assert live.wait(job)["state"] == "succeeded"
    assert live.tasks(job)[0]["failures"] == 1


def test_groups_run_in_the_order_of_their_needs(live: LiveLeague) -> None:
    stamp = "date +%s%N"
    job = live.submit({"groups": [
        {"name": "last", "needs": ["first"], "command": stamp},
        {"name": "first", "count": 2, "command": f"sleep 0.2; {stamp}"},
    ]})  # fmt: skip
    assert live.wait(job)["state"] == "succeeded"
    assert int(live.output(job, 0)) > max(int(live.output(job, 1)), int(live.output(job, 2)))


def test_a_job_waits_for_another_even_at_another_broker(live: LiveLeague) -> None:
    first = live.submit({"command": "sleep 0.3; date +%s%N"}, "b1")
    second = live.submit({"command": "date +%s%N", "after": [first]}, "b2")
    assert live.wait(second, "b2")["state"] == "succeeded"
    assert int(live.output(second, broker="b2")) > int(live.output(first))
    bad = live.submit({"command": "false"}, "b1")
    never = live.submit({"command": "true", "after": [bad]}, "b2")
    assert live.wait(never, "b2")["state"] == "cancelled"


def test_a_gang_starts_together_or_not_at_all(live: LiveLeague) -> None:
    job = live.submit({"gang": True, "count": 4, "command": "date +%s%N; sleep 1"})
    row = live.wait(job)
    assert row["state"] == "succeeded"
    assert len(row["clusters"]) == 1
    starts = [int(live.output(job, index)) for index in range(4)]
    assert max(starts) - min(starts) < 900_000_000


def test_cancel_ends_what_runs_and_what_waits(live: LiveLeague) -> None:
    job = live.submit({"count": 12, "command": "trap 'echo bye; exit 0' TERM; sleep 100 & wait"})
    deadline = time.monotonic() + 60
    while live.broker().ask("GET", f"/v1/jobs/{job}")["row"]["running"] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    live.broker().ask("POST", f"/v1/jobs/{job}/cancel", {})
    row = live.wait(job)
    assert row["state"] == "cancelled"
    assert row["cancelled"] == 12


def test_a_deadline_ends_a_job(live: LiveLeague) -> None:
    job = live.submit({"deadline": "1s", "command": "sleep 100", "grace": 0})
    assert live.wait(job)["state"] == "cancelled"


@pytest.mark.parametrize("wish", [{}, {"nodes": []}, {"drain": False}, {"nodes": [0], "whole": True}])
def test_what_is_to_be_drained_must_be_named(live: LiveLeague, wish: dict[str, object]) -> None:
    status, answer = live.cluster("south").raw("POST", "/v1/drain", wish)
    error = msgspec.json.decode(answer)["error"]
    assert (status, error["code"]) == (422, "bad_request")
    assert '{"whole": true}' in error["hint"]
    assert live.cluster("south").ask("GET", "/v1/cluster")["drains"] == []


def test_a_drained_cluster_gets_nothing_until_it_is_opened(live: LiveLeague) -> None:
    until = (time.time_ns() + 3_600 * 10**9) // 1_000
    wish = {"whole": True, "drain": True, "reason": "new disks", "until": until}
    live.cluster("south").ask("POST", "/v1/drain", wish)
    job = live.submit({"command": "true", "where": 'zone == "b"'})
    other = live.submit({"command": "true", "where": 'zone == "a"'})
    assert live.wait(other)["state"] == "succeeded"
    assert live.broker().ask("GET", f"/v1/jobs/{job}")["row"]["state"] == "queued"
    deadline = time.monotonic() + 60
    while "south is drained" not in (told := live.broker().ask("GET", f"/v1/jobs/{job}/why")["sentences"][0]):
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
    assert "because no cluster that could run it takes new work now" in told
    assert "south is drained (new disks, by " in told
    assert " UTC, until " in told
    plan = live.broker().ask("POST", "/v1/plan", {"command": "true", "where": 'zone == "b"'})
    assert plan["unknown"].startswith("In the current state it would not start: south is drained (new disks")
    known = {one["name"]: one for one in live.broker().ask("GET", "/v1/league")["clusters"]}
    assert known["south"]["draining"] is True
    assert known["south"]["drains"][0]["reason"] == "new disks"
    (drain,) = live.cluster("south").ask("GET", "/v1/cluster")["drains"]
    assert abs(drain["until"] - until) < 60_000_000
    live.cluster("south").ask("POST", "/v1/drain", {"whole": True, "drain": False})
    assert live.wait(job)["state"] == "succeeded"


def test_what_no_cluster_could_ever_run_is_refused_with_the_reason(live: LiveLeague) -> None:
    for job, says in (
        ({"command": "true", "cpus": 64}, "no node of any allowed cluster"),
        ({"command": "true", "gang": True, "count": 99}, "no cluster holds a gang"),
        ({"command": "true", "where": 'zone == "mars"'}, "no node of any allowed cluster"),
        ({"command": "true", "clusters": {"allow": ["mars"]}}, "exclude every cluster"),
    ):
        result = live.broker().ask("POST", "/v1/jobs", {"jobs": [job]})["results"][0]
        assert says in result["refused"], result


def test_mistakes_in_a_job_are_told_with_their_field(live: LiveLeague) -> None:
    status, said = live.broker().raw("POST", "/v1/jobs", {"jobs": [{"comand": "true"}]})
    assert status == 422
    result = msgspec.json.decode(said)["results"][0]
    assert result["problems"][0]["field"] == "comand"
    assert "command" in result["problems"][0]["rule"]


def test_the_same_client_id_gives_the_same_job(live: LiveLeague) -> None:
    spec = {"command": "true", "client_id": "only-once"}
    assert live.submit(spec) == live.submit(spec)


def test_memory_beyond_the_limit_is_told_as_such(live: LiveLeague) -> None:
    hog = "exec python3 -c 'x = bytearray(300 << 20)'"
    job = live.submit({"memory": "32MiB", "command": hog})
    assert live.wait(job)["state"] == "failed"
    assert "memory" in live.tasks(job)[0]["note"]


def test_several_tenants_are_counted_apart(live: LiveLeague) -> None:
    for tenant in ("physics", "biology"):
        live.wait(live.submit({"tenant": tenant, "command": "true"}))
    rows = live.broker().ask("GET", "/v1/jobs?tenant=physics")["jobs"]
    assert {row["tenant"] for row in rows} == {"physics"}


def test_a_broker_sends_you_to_the_owner_of_a_job(live: LiveLeague) -> None:
    job = live.submit({"command": "true"}, "b1")
    live.wait(job)
    status, _ = live.broker("b2").raw("GET", f"/v1/jobs/{job}")
    assert status == 307
    assert live.broker("b2").ask("GET", f"/v1/jobs/{job}?local=1")["row"]["owner"] == "b1"
    assert live.broker("b2").raw("GET", "/v1/jobs/2-4000000")[0] == 404


def test_why_is_answered_in_sentences(live: LiveLeague) -> None:
    job = live.submit({"command": "true"})
    live.wait(job)
    answer = live.broker().ask("GET", f"/v1/jobs/{job}/why")
    assert answer["sentences"]
    assert answer["decisions"]


def test_a_node_that_vanishes_loses_nothing(live: LiveLeague) -> None:
    """The last test of this league: its runner on a machine of its own is killed with all that it ran."""
    job = live.submit({"command": "sleep 2; echo done", "where": 'zone == "far" or zone == "b"'})
    waiting = live.submit({"command": "echo far", "where": 'zone == "far"'})
    live.kill("far-1")
    assert live.wait(job)["state"] == "succeeded"
    assert live.broker().ask("GET", f"/v1/jobs/{waiting}")["row"]["state"] in (
        "queued",
        "placed",
        "succeeded",
    )
    live.start("far-1")
    assert live.wait(waiting)["state"] == "succeeded"
    assert live.output(job) == "done\n"
