"""A real league whose members come, change and go while it runs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from hanse.cli.embedded.league_setup import certify
from hanse.league.config import ClusterEntry, LeagueConfig
from hanse.league.file import league_to_text, load
from hanse.security.certificate_authority import Authority
from hanse.security.identity import Role
from tests.live.harness import Door, LiveLeague, open_directory, running
from tests.live.ports import free_address

LEAGUE = """
brokers: [{name: b1}, {name: b2}, {name: b3}]
clusters:
  - {name: north, nodes: [{count: 2, cpus: 2, memory: 256MiB}], backend: "null"}
  - {name: south, nodes: [{count: 2, cpus: 2, memory: 256MiB}], backend: "null"}
"""
BROKERS = ("b1", "b2", "b3")
SECONDS_MAX = 90.0
"""Longer than anything here takes on a busy machine; reached only by a failure."""


def until(condition: Callable[[], bool], what: str) -> None:
    """Look at the outside world until it is as it should be."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"it never came to that: {what}"
        time.sleep(0.05)  # there is nothing to await


def with_west(live: LiveLeague) -> LeagueConfig:
    """The league as its home has it now, and a cluster more."""
    known = load(live.home.league_file)
    first = known.clusters[0]
    west = ClusterEntry("west", free_address(), free_address(), first.nodes, first.backend)
    nodes = tuple(msgspec.structs.replace(node, runner=west.own_runner) for node in west.nodes)
    return msgspec.structs.replace(
        known, clusters=(*known.clusters, msgspec.structs.replace(west, nodes=nodes))
    )


def file_version(live: LiveLeague, name: str) -> int:
    """The version by which a broker says that it lives, with nobody behind; -1: it is not to be asked."""
    try:
        found = live.broker(name).ask("GET", "/v1/league")
    except (AssertionError, OSError):
        return -1
    return -1 if found["other_files"] else int(found["file_version"])


def until_all_have(live: LiveLeague, version: int) -> None:
    """Wait until every broker has this version, and knows of nobody who has another."""
    until(lambda: all(file_version(live, name) == version for name in BROKERS), f"all have version {version}")


def clusters_of(live: LiveLeague, name: str) -> list[str]:
    try:
        found = live.broker(name).ask("GET", "/v1/league")
    except (AssertionError, OSError):
        return []
    return [cluster["name"] for cluster in found["clusters"] if cluster["reachable"]]


@contextmanager
def load_on(live: LiveLeague) -> Iterator[list[str]]:
    """Somebody submits all the time, and asks another broker where one is away; the acknowledged jobs."""
    jobs: list[str] = []
    done = threading.Event()

    def submit() -> None:
        number = 0
        doors = [Door(live, Role.BROKER, name) for name in BROKERS]
        while not done.wait(0.05):
            number += 1
            job = {"command": "true", "client_id": f"load-{number}"}
            for door in doors:
                try:
                    jobs.append(door.ask("POST", "/v1/jobs", {"jobs": [job]})["results"][0]["job"])
                    break
                except (AssertionError, OSError, KeyError):
                    continue
        for door in doors:
            door.close()

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield jobs
    finally:
        done.set()
        thread.join()


def ended(live: LiveLeague, jobs: list[str]) -> bool:
    """Whether all of these have succeeded, asked of any broker."""
    return all(live.wait(job, "b2")["state"] == "succeeded" for job in jobs)


def test_a_cluster_comes_and_another_goes_while_jobs_run() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        with load_on(live) as jobs:
            wanted = with_west(live)
            answer = live.broker("b2").ask("POST", "/v1/league/file", {"text": league_to_text(wanted)})
            assert (answer["version"], answer["changes"]) == (1, ["The cluster west is new."])
            assert set(answer["untold"]) <= {"west"}
            live.league = load(live.home.league_file)
            assert live.league.version == 1
            certify(live.home, live.league, Authority.open(live.home.authority))
            live.start("west")
            until(lambda: all("west" in clusters_of(live, name) for name in BROKERS), "all use west")
            until_all_have(live, 1)
            job = live.submit({"count": 4, "command": "true", "clusters": {"allow": ["west"]}}, "b3")
            assert live.wait(job, "b3")["succeeded"] == 4

            refused = live.broker("b1").raw("POST", "/v1/league/file", {"text": retired(live, "south")})
            assert refused[0] == 409
            assert b"south accepts work" in refused[1]
            live.cluster("south").ask("POST", "/v1/drain", {"whole": True, "drain": True})
            until(lambda: tried(live, "south") == 200, "south is drained")
            live.broker("b1").ask("POST", "/v1/league/file", {"text": retired(live, "south")})
            assert live.processes.pop("south").wait(SECONDS_MAX) != 0
            assert "south was retired from the league" in live.log("south")
            assert load(live.home.league_file).drained == ("south",)
            left = ["north", "west"]
            until(lambda: all(clusters_of(live, name) == left for name in BROKERS), "south is gone")
        assert len(jobs) > 20
        assert len(set(jobs)) == len(jobs)
        assert ended(live, jobs)


def retired(live: LiveLeague, name: str) -> str:
    known = load(live.home.league_file)
    gone = tuple(
        msgspec.structs.replace(one, retired=True) if one.name == name else one for one in known.clusters
    )
    return league_to_text(msgspec.structs.replace(known, clusters=gone))


def tried(live: LiveLeague, name: str) -> int:
    wish = {"text": retired(live, name), "try_only": True}
    try:
        return live.broker("b1").raw("POST", "/v1/league/file", wish)[0]
    except OSError:  # it starts again
        return 0


def test_the_same_change_asked_for_at_every_broker_is_made_once() -> None:
    """A client does so whose broker stops before it answers, as one does that starts again."""
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        known = load(live.home.league_file)
        policy = msgspec.structs.replace(known.policy, order="fifo")
        text = league_to_text(msgspec.structs.replace(known, policy=policy))
        answers = [live.broker(name).raw("POST", "/v1/league/file", {"text": text}) for name in BROKERS]
        assert [status for status, _ in answers] == [200, 200, 200], answers
        assert [msgspec.json.decode(body)["version"] for _, body in answers] == [1, 1, 1]
        other = text.replace("fifo", "short-first")
        status, body = live.broker("b3").raw("POST", "/v1/league/file", {"text": other})
        assert status == 409
        assert b"made from version 0, and the league's is version 1. Your change was not made" in body
        assert b"hanse league show" in body
        until_all_have(live, 1)


def test_of_two_changes_at_once_one_is_made_and_the_other_refused() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        known = load(live.home.league_file)
        answers: dict[str, tuple[int, bytes]] = {}

        def change(broker: str, order: str) -> None:
            policy = msgspec.structs.replace(known.policy, order=order)
            text = league_to_text(msgspec.structs.replace(known, policy=policy))
            answers[broker] = live.broker(broker).raw("POST", "/v1/league/file", {"text": text})

        wishes = {"b1": "fifo", "b2": "short-first"}
        threads = [threading.Thread(target=change, args=wish) for wish in wishes.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made = [broker for broker, (status, _) in answers.items() if status == 200]
        assert len(made) <= 1, answers
        assert all(status in (200, 409, 503) for status, _ in answers.values()), answers
        until_all_have(live, 1)
        if made:
            assert load(live.home.league_file).policy.order == wishes[made[0]]


def refused(live: LiveLeague, wish: dict[str, str]) -> bytes:
    """What b1 says to a change that is not made; nothing while it starts again."""
    try:
        status, body = live.broker("b1").raw("POST", "/v1/league/file", wish)
    except OSError:
        return b""
    assert status == 503, body
    return body


def test_a_league_changes_while_one_broker_is_away_and_tells_it_when_it_is_back() -> None:
    with open_directory() as directory:
        live = LiveLeague(directory / "home", LEAGUE)
        try:
            live.start().settle()
            live.kill("b3")
            known = load(live.home.league_file)
            policy = msgspec.structs.replace(known.policy, order="fifo")
            text = league_to_text(msgspec.structs.replace(known, policy=policy))
            answer = live.broker("b1").ask("POST", "/v1/league/file", {"text": text})
            assert answer["version"] == 1
            assert answer["untold"] == ["b3"]
            live.kill("b2")
            again = league_to_text(load(live.home.league_file))
            wish = {"text": again.replace("fifo", "fewest-remaining")}
            until(lambda: b"a majority of the 3 brokers must agree" in refused(live, wish), "b1 asks in vain")
            live.start("b2", "b3")
            until_all_have(live, 1)
        finally:
            live.close()
