"""Submitting: all or none by form, the same again is the same job, and nobody waits for an answer that will
not come."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from hanse.live.http.submission import CHUNK_JOBS, CHUNKS_IN_FLIGHT_MAX
from hanse.security.identity import Role
from tests.live.harness import LiveLeague
from tests.live.http.conftest import Said, ask, bearer, nobody


@pytest.fixture(scope="module")
def ann(live: LiveLeague) -> dict[str, str]:
    return bearer(live, Role.SUBMITTER, "ann")


def submit(live: LiveLeague, headers: dict[str, str], *jobs: Any, **more: str) -> Said:
    body = msgspec.json.encode({"jobs": jobs})
    given = {name.replace("_", "-"): value for name, value in more.items()}
    return ask(live.league.broker("b1").door, nobody(live), "POST", "/v1/jobs", body, {**headers, **given})


def results(said: Said) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = msgspec.json.decode(said.body)["results"]
    return found


def count(live: LiveLeague, tenant: str) -> int:
    return len(live.broker().ask("GET", f"/v1/jobs?tenant={tenant}&limit=1000")["jobs"])


def test_one_bad_job_keeps_the_whole_request_out(live: LiveLeague, ann: dict[str, str]) -> None:
    good = {"tenant": "mixed", "command": "true"}
    said = submit(live, ann, good, {**good, "cpus": "many"}, good)
    assert (said.status, said.code) == (422, "bad_jobs")
    first, second, third = results(said)
    assert [problem["field"] for problem in second["problems"]] == ["cpus"]
    assert first == third
    assert "not submitted" in first["refused"]
    assert count(live, "mixed") == 0
    said = submit(live, ann, good, good)
    assert said.status == 200
    assert count(live, "mixed") == 2


def test_a_job_that_cannot_be_placed_does_not_hold_up_the_others(
    live: LiveLeague, ann: dict[str, str]
) -> None:
    good = {"tenant": "unplaceable", "command": "true"}
    said = submit(live, ann, good, {**good, "cpus": 4_000}, good)
    assert said.status == 200
    assert ["job" in result for result in results(said)] == [True, False, True]
    assert results(said)[1]["refused"]


def test_a_key_makes_a_request_safe_to_repeat(live: LiveLeague, ann: dict[str, str]) -> None:
    job = {"tenant": "keyed", "command": "true"}
    first = results(submit(live, ann, job, job, Idempotency_Key="k-1"))
    assert first[0]["job"] != first[1]["job"]
    assert results(submit(live, ann, job, {**job, "client_id": ""}, Idempotency_Key="k-1")) == first
    assert count(live, "keyed") == 2
    assert results(submit(live, ann, job, Idempotency_Key="k-2"))[0] not in first
    bob = bearer(live, Role.SUBMITTER, "bob")
    assert results(submit(live, bob, job, job, Idempotency_Key="k-1")) != first, "bob's key is not ann's"
    named = {**job, "client_id": "mine"}
    assert results(submit(live, ann, named, Idempotency_Key="k-3")) == results(submit(live, ann, named))


def test_the_same_client_id_twice_in_one_request_is_one_job(live: LiveLeague, ann: dict[str, str]) -> None:
    job = {"tenant": "twice", "command": "true", "client_id": "twice-1"}
    first, second = results(submit(live, ann, job, job))
    assert first == second
    assert "job" in first, "it waited in vain for an answer that only the second got"
    assert count(live, "twice") == 1


def test_the_same_client_id_in_many_requests_at_once_is_one_job(
    live: LiveLeague, ann: dict[str, str]
) -> None:
    job = {"tenant": "race", "command": "true", "client_id": "race-1"}
    with ThreadPoolExecutor(12) as pool:
        said = list(pool.map(lambda _: submit(live, ann, job), range(36)))
    assert {one.status for one in said} == {200}
    assert len({results(one)[0]["job"] for one in said}) == 1
    assert count(live, "race") == 1


@pytest.mark.parametrize("name", ["naïve", "测试", "🚢 hanse", "a" * 128, "\u202eright-to-left", "tab\there"])
def test_names_of_all_the_world_come_back_as_they_were(
    live: LiveLeague, ann: dict[str, str], name: str
) -> None:
    said = submit(live, ann, {"name": name, "command": ["echo", name]})
    if said.status == 422:
        assert not name.isprintable()
        return
    job = results(said)[0]["job"]
    assert live.broker().ask("GET", f"/v1/jobs/{job}")["row"]["name"] == name
    assert live.wait(job)["state"] == "succeeded"


def test_a_thousand_jobs_in_one_request(live: LiveLeague, ann: dict[str, str]) -> None:
    said = submit(live, ann, *({"tenant": "many", "command": "true"} for _ in range(1_100)))
    assert said.status == 200
    assert len({result["job"] for result in results(said)}) == 1_100


def test_cancelling_what_is_not_there(live: LiveLeague, ann: dict[str, str]) -> None:
    said = ask(
        live.league.broker("b1").door, nobody(live), "POST", "/v1/jobs/1-4000000000/cancel", headers=ann
    )
    assert (said.status, said.code) == (404, "not_found")


def test_a_request_of_many_lumps_is_answered_in_its_own_order(live: LiveLeague, ann: dict[str, str]) -> None:
    many = CHUNK_JOBS * (CHUNKS_IN_FLIGHT_MAX + 3) + 7
    jobs: list[dict[str, Any]] = [
        {"tenant": "lumps", "name": f"n-{number}", "command": "true"} for number in range(many)
    ]
    odd, again = many // 2, many - 1
    jobs[odd]["cpus"] = 4_000  # more than there are
    jobs[0]["client_id"] = jobs[again]["client_id"] = "lumps-first"
    found = results(submit(live, ann, *jobs))
    assert len(found) == many
    assert [number for number, result in enumerate(found) if "job" not in result] == [odd]
    assert found[again] == found[0]
    for number in (0, 1, CHUNK_JOBS - 1, CHUNK_JOBS, odd - 1, odd + 1, again - 1):
        row = live.broker().ask("GET", f"/v1/jobs/{found[number]['job']}?local=1")["row"]
        assert row["name"] == f"n-{number}"
    assert len({result["job"] for result in found if "job" in result}) == many - 2
