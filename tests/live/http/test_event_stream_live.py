"""Watching a real league: in order, without a hole, after a break and after a restart."""

import signal
import ssl
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import Any

import pytest

from hanse.league.config import Address
from hanse.security.identity import Role
from tests.live.harness import LiveLeague, open_directory, running
from tests.live.http.conftest import LEAGUE, ask, bearer, nobody
from tests.live.http.watcher import Heard, Watcher


@pytest.fixture(scope="module")
def own() -> Iterator[LiveLeague]:
    """A league whose members may be killed."""
    with open_directory() as directory, running(directory / "home", LEAGUE) as league:
        yield league


@pytest.fixture(scope="module")
def ann(own: LiveLeague) -> dict[str, str]:
    return bearer(own, Role.SUBMITTER, "ann")


@pytest.fixture(scope="module")
def door(own: LiveLeague) -> Address:
    return own.league.broker("b1").door


@pytest.fixture(scope="module")
def context(own: LiveLeague) -> ssl.SSLContext:
    return nobody(own)


def states(heard: list[Heard], job: str) -> list[str]:
    return [event.data["state"] for event in heard if event.kind == "job" and event.data["job"] == job]


def ids(heard: list[Heard]) -> list[int]:
    return [int(event.id.rpartition("/")[2]) for event in heard if event.id]


def test_what_happens_to_a_job_is_told_in_order(
    own: LiveLeague, door: Address, context: ssl.SSLContext, ann: dict[str, str]
) -> None:
    with closing(Watcher(door, context, ann, "?topics=jobs,decisions").opened()) as watcher:
        job = own.submit({"name": "watched", "count": 3, "command": "true"})
        heard = watcher.upto("job", job=job, state="succeeded")
    assert states(heard, job)[-1] == "succeeded"
    assert all(one != other for one, other in pairwise(states(heard, job)))
    assert ids(heard) == sorted(set(ids(heard)))
    placed = [event.data for event in heard if event.kind == "decision"]
    assert any(data["job"] == job and data["decision"]["answered"] == "placed" for data in placed)
    assert all(event.kind in ("job", "decision") for event in heard)


def test_after_a_break_the_stream_goes_on_where_it_was(
    own: LiveLeague, door: Address, context: ssl.SSLContext, ann: dict[str, str]
) -> None:
    with closing(Watcher(door, context, ann, "?topics=jobs").opened()) as first:
        one = own.submit({"command": "true"})
        first.upto("job", job=one, state="succeeded")
        last = first.last
    missed = [own.submit({"command": "true"}) for _ in range(5)]
    for job in missed:
        own.wait(job)
    with closing(Watcher(door, context, ann, "?topics=jobs", last)) as again:
        heard = again.upto("job", job=missed[-1], state="succeeded")
    assert ids(heard) == sorted(set(ids(heard)))
    assert min(ids(heard)) > int(last.rpartition("/")[2])
    assert one not in {event.data["job"] for event in heard}
    for job in missed:
        assert states(heard, job)[-1] == "succeeded"
    with closing(Watcher(door, context, ann, f"?topics=jobs&after={last}")) as third:
        assert third.upto("job", job=missed[-1], state="succeeded") == heard


def timeless(events: list[Heard]) -> list[Heard]:
    """Events without times of day, which are estimates that get better by microseconds with later writes."""

    def without(data: Any) -> Any:
        whole = isinstance(data, dict)
        return {key: without(value) for key, value in data.items() if key != "at"} if whole else data

    return [Heard(event.kind, event.id, without(event.data)) for event in events]


def test_ids_mean_the_same_after_the_broker_was_killed(
    own: LiveLeague, door: Address, context: ssl.SSLContext, ann: dict[str, str]
) -> None:
    with closing(Watcher(door, context, ann, "?topics=jobs,decisions&after=0")) as before:
        job = own.submit({"command": "true"})
        whole = before.upto("job", job=job, state="succeeded")
        middle = whole[len(whole) // 2].id
    own.kill("b1", signal.SIGKILL)
    own.start("b1").settle()
    with closing(Watcher(door, context, ann, "?topics=jobs,decisions", middle)) as after:
        rest = after.upto("job", job=job, state="succeeded")
        assert timeless(rest) == timeless(whole[len(whole) // 2 + 1 :])
        newer = own.submit({"command": "true"})
        assert states(after.upto("job", job=newer, state="succeeded"), newer)[-1] == "succeeded"


@pytest.mark.parametrize("asked", ["b2/1", "b1/9223372036854775807", "elsewhere/5"])
def test_an_id_that_cannot_be_followed_is_answered_with_a_gap(
    own: LiveLeague, door: Address, context: ssl.SSLContext, ann: dict[str, str], asked: str
) -> None:
    with closing(Watcher(door, context, ann, "?topics=jobs", asked)) as watcher:
        gap = next(iter(watcher))
        assert (gap.kind, gap.data["asked"], gap.data["continues"]) == ("gap", asked, gap.id)
        job = own.submit({"command": "true"})
        assert states(watcher.upto("job", job=job, state="succeeded"), job)[-1] == "succeeded"


def test_only_what_was_asked_for_is_told(
    own: LiveLeague, door: Address, context: ssl.SSLContext, ann: dict[str, str]
) -> None:
    with (
        closing(Watcher(door, context, ann, "?topics=jobs&tenant=red").opened()) as red,
        closing(Watcher(door, context, ann, "?topics=decisions").opened()) as decisions,
    ):
        blue = own.submit({"tenant": "blue", "command": "true"})
        own.wait(blue)
        job = own.submit({"tenant": "red", "command": "true"})
        assert {event.data["job"] for event in red.upto("job", job=job, state="succeeded")} == {job}
        assert {event.kind for event in decisions.upto("decision", job=job)} == {"decision"}
    with closing(Watcher(door, context, ann, f"?job={blue}&after=0")) as one:
        heard = one.upto("job", job=blue, state="succeeded")
        assert {event.data["job"] for event in heard} == {blue}


def test_a_cluster_that_falls_silent_is_told(
    own: LiveLeague, door: Address, context: ssl.SSLContext, ann: dict[str, str]
) -> None:
    with closing(Watcher(door, context, ann, "?topics=clusters")) as watcher:
        first = watcher.upto("cluster", name="far", reachable=True)
        assert {event.data["name"] for event in first} <= {"north", "far"}
        assert not any(event.id for event in first), "a state has no place in the history"
        own.kill("far", signal.SIGKILL)
        watcher.upto("cluster", name="far", reachable=False)
        own.start("far")
        watcher.upto("cluster", name="far", reachable=True)


def test_a_watcher_is_told_when_its_broker_stops(
    own: LiveLeague, door: Address, context: ssl.SSLContext, ann: dict[str, str]
) -> None:
    with closing(Watcher(door, context, ann, "?topics=jobs").opened()) as watcher:
        own.kill("b1", signal.SIGTERM)
        assert list(watcher) == []
        assert any("stops" in comment for comment in watcher.comments)
    own.start("b1").settle()
    assert ask(door, context, "GET", "/healthz").status == 200
