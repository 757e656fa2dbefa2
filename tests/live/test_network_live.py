"""Members of a real league on hosts of their own, and a network between them that fails as networks do.

Every fault here leaves processes alone: who cannot be heard still lives, believes what it last heard, and acts
on it. The tests ask whether that does harm: tasks tell their lives to one file, and a judge reads it.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.execution_log import Life, command, complaints, lives
from tests.live.harness import LiveLeague, open_directory, running
from tests.live.namespaces import Network, Way, network, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

BROKERS = ("b1", "b2")
CLUSTERS = ("north", "south")
USER = "user"
"""The host from which the test talks to the league."""
LEASE_NANOSECONDS = 4 * 10**9
TIMINGS = (
    "{cluster_lease: 4s, runner_lease: 3s, suspect_after: 3s, lease_grace: 500ms, start_deadline: 5s, "
    "resend_max: 2s}"
)
SLOTS = {f"{cluster}/{node}": 4 for cluster in CLUSTERS for node in (0, 1)}
UNTIL_SECONDS_MAX = 60.0

SLOW = Way(delay_seconds=0.1, bits_per_second=256_000)
SLOW_ROUNDS = 3
SUBMITS_A_ROUND = 15
RATIO_MAX = 3.0
"""How much longer a submission may take than without the slow link, at a broker that does not use it: far
more than chance, far less than a wait for the slow link would be."""


class Sea:
    """A league, the network between its members, and the file to which its tasks tell their lives."""

    def __init__(self, live: LiveLeague, net: Network, log: Path) -> None:
        self.live = live
        self.net = net
        self.log = log

    def tell(self, pause: str, **more: Any) -> dict[str, Any]:
        """A job whose tasks tell their lives; ``pause`` seconds between their words."""
        return {"memory": "16MiB", "command": command(self.log, pause), **more}

    def lives(self, job: str) -> list[Life]:
        """What a job's attempts have told so far."""
        return [life for life in lives(self.log) if life.task.startswith(f"{job}.")]

    def begun(self, job: str, cluster: str) -> int:
        """How many of a job's attempts have begun in a cluster and not ended."""
        return sum(life.node.startswith(cluster) and not life.finished for life in self.lives(job))

    def succeeded(self, job: str, broker: str) -> dict[str, int]:
        """Wait until a job has succeeded; its tasks, each with the attempt that counted."""
        row = self.live.wait(job, broker)
        assert row["state"] == "succeeded", row
        return {f"{job}.{task['index']}": task["attempt"] for task in self.live.tasks(job, broker)}

    def judge(self, done: dict[str, int]) -> None:
        """Nothing ran twice at once, no node held too much, and what counts as done was done."""
        assert not (wrong := complaints(lives(self.log), done, SLOTS)), wrong


@pytest.fixture(scope="module")
def league() -> Iterator[Sea]:
    with network((*BROKERS, *CLUSTERS, USER)) as net, open_directory() as directory:
        log = directory / "lives"
        log.touch()
        log.chmod(0o666)
        with net.inside(USER), running(directory / "home", _description(net), place=net.prefix) as live:
            yield Sea(live, net, log)


@pytest.fixture
def sea(league: Sea) -> Iterator[Sea]:
    """The league with a whole network and an empty file."""
    league.net.heal()
    league.live.settle()
    league.log.write_bytes(b"")
    yield league
    league.net.heal()


@pytest.mark.parametrize(("source", "target"), [("north", "b1"), ("b1", "north")])
def test_a_cluster_that_can_only_hear_or_only_be_heard_runs_nothing_twice(
    sea: Sea, source: str, target: str
) -> None:
    live, net = sea.live, sea.net
    job = live.submit(sea.tell("0.3", count=60))
    _until(lambda: sea.begun(job, "north") >= 4)
    net.cut(source, target)
    # For the other broker nothing has changed.
    other = sea.succeeded(live.submit(sea.tell("0.1", count=4, clusters={"allow": ["north"]}), "b2"), "b2")
    new = sea.succeeded(live.submit(sea.tell("0.1", count=4)), "b1")
    # What the cut-off cluster had must have run again elsewhere, or this would not come back.
    done = sea.succeeded(job, "b1")
    assert net.lost[source, target] > 0
    moved = [life for life in sea.lives(job) if life.node.startswith("north") and life.attempt < done[life.task]]
    assert moved, "the cluster was cut off while it ran something"
    net.heal()
    again = sea.succeeded(live.submit(sea.tell("0.01", count=8, clusters={"allow": ["north"]})), "b1")
    assert len(done) == 60
    sea.judge({**other, **new, **done, **again})


def test_a_cluster_without_the_league_ends_what_moves_and_finishes_what_waits(sea: Sea) -> None:
    live, net = sea.live, sea.net
    waits = live.submit(sea.tell("3", count=3, unreachable="wait", clusters={"allow": ["north"]}))
    moves = live.submit(sea.tell("0.5", count=30, unreachable="move"), "b2")
    _until(lambda: sea.begun(waits, "north") == 3 and sea.begun(moves, "north") >= 2)
    net.part("north", *BROKERS, USER)
    cut = time.time_ns()
    moved = sea.succeeded(moves, "b2")
    assert time.time_ns() - cut > LEASE_NANOSECONDS, "nothing may be moved before the lease is over"
    assert any(life.node.startswith("north") and life.attempt < moved[life.task] for life in sea.lives(moves))
    assert live.broker().ask("GET", f"/v1/jobs/{waits}")["row"]["state"] == "running"
    net.heal()
    waited = sea.succeeded(waits, "b1")
    assert list(waited.values()) == [1, 1, 1]
    assert len(told := sea.lives(waits)) == 3
    assert min(life.last for life in told) - cut > LEASE_NANOSECONDS
    sea.judge({**moved, **waited})


def test_a_slow_link_slows_nobody_who_does_not_use_it(sea: Sea) -> None:
    live, net = sea.live, sea.net
    seconds: dict[bool, list[float]] = {False: [], True: []}
    done: dict[str, int] = {}
    for _ in range(SLOW_ROUNDS):
        for slow in (False, True):
            net.heal()
            if slow:
                net.slow("b1", "north", SLOW)
            jobs = [
                live.submit(sea.tell("0.05", count=6, clusters={"allow": [cluster]})) for cluster in CLUSTERS
            ]
            for _ in range(SUBMITS_A_ROUND):
                before = time.perf_counter()
                live.submit({"command": "true"}, "b2")
                seconds[slow].append(time.perf_counter() - before)
            for job in jobs:
                done |= sea.succeeded(job, "b1")
    assert {life.node.partition("/")[0] for life in lives(sea.log)} == set(CLUSTERS)
    ratio = statistics.median(seconds[True]) / statistics.median(seconds[False])
    assert ratio < RATIO_MAX, ratio
    sea.judge(done)


def test_brokers_that_have_lost_each_other_go_on_taking_jobs(sea: Sea) -> None:
    live, net = sea.live, sea.net
    early = {name: live.submit(sea.tell("0.3", count=10), name) for name in BROKERS}
    _until(lambda: all(sea.lives(job) for job in early.values()))
    net.part(*BROKERS)
    late = {name: [live.submit(sea.tell("0.1", count=2), name) for _ in range(10)] for name in BROKERS}
    done: dict[str, int] = {}
    for name in BROKERS:
        for job in late[name]:
            done |= sea.succeeded(job, name)
    net.heal()
    live.settle()
    for name in BROKERS:
        done |= sea.succeeded(early[name], _speaks_for(live, early[name]))
    assert len(done) == 60
    sea.judge(done)


def _description(net: Network) -> str:
    """The league file: every member on its host."""
    listens = {
        host: f'name: {host}, address: "{net.address(host)}:7401", door: "{net.address(host)}:7402"'
        for host in (*BROKERS, *CLUSTERS)
    }
    nodes = "nodes: [{count: 2, cpus: 4, memory: 512MiB}]"
    return "\n".join(
        [
            f"timings: {TIMINGS}",
            "brokers:",
            *(f"  - {{{listens[name]}}}" for name in BROKERS),
            "clusters:",
            *(f"  - {{{listens[name]}, {nodes}}}" for name in CLUSTERS),
        ]
    )


def _until(condition: Callable[[], bool]) -> None:
    """Look at the outside world until it is as it should be."""
    deadline = time.monotonic() + UNTIL_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)  # there is nothing to await


def _speaks_for(live: LiveLeague, job: str) -> str:
    """The broker that owns a job now."""
    for name in BROKERS:
        if live.broker(name).raw("GET", f"/v1/jobs/{job}")[0] == 200:
            return name
    raise AssertionError(f"nobody speaks for {job}")
