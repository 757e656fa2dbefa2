"""Members of a real league on hosts of their own, and a network between them that fails as networks do.

Every fault here leaves processes alone: who cannot be heard still lives, believes what it last heard, and
acts on it. The tests ask whether that does harm: tasks tell their lives to one file, and a judge reads it.
"""

import socket
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hanse.security.identity import Role
from tests.live.execution_log import Life, command, complaints, lives
from tests.live.harness import Door, LiveLeague, open_directory, running
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
PORTS = (("address", 7401), ("door", 7402))
SLOTS = {f"{cluster}/{node}": 4 for cluster in CLUSTERS for node in (0, 1)}
UNTIL_SECONDS_MAX = 120.0
WORDS = 40
"""How many words a task that lingers says, one each 0.2 s: for longer than a lease."""
MORE_WORDS = 60
"""The same, for longer than anybody waits for a lease to be over."""

SLOW = Way(delay_seconds=0.2, bits_per_second=256_000)
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

    def linger(self, words: int = WORDS, **more: Any) -> dict[str, Any]:
        """A job whose tasks, when they are tried first, go on for long and say so often."""
        times = f"HANSE_ATTEMPT == 1 ? {words} : 3"
        return {"memory": "16MiB", "command": command(self.log, "0.2", times), **more}

    def lives(self, job: str) -> list[Life]:
        """What a job's attempts have told so far."""
        return [life for life in lives(self.log) if life.task.startswith(f"{job}.")]

    def begun(self, job: str, cluster: str) -> int:
        """How many of a job's attempts have begun in a cluster and not ended."""
        return sum(life.node.startswith(cluster) and not life.finished for life in self.lives(job))

    def moved(self, job: str, done: dict[str, int]) -> list[Life]:
        """A job's attempts that began in the north and did not count in the end."""
        return [
            life
            for life in self.lives(job)
            if life.node.startswith("north") and life.attempt < done[life.task]
        ]

    def succeeded(self, job: str, broker: str) -> dict[str, int]:
        """Wait until a job has succeeded; its tasks, each with the attempt that counted."""
        row = self.live.wait(job, broker)
        assert row["state"] == "succeeded", row
        return {f"{job}.{task['index']}": task["attempt"] for task in self.live.tasks(job, broker)}

    def owner(self, job: str) -> str:
        """The broker that speaks for a job now."""
        answers = {name: self.live.broker(name).raw("GET", f"/v1/jobs/{job}")[0] for name in BROKERS}
        return next((name for name, status in answers.items() if status == 200), "")

    def ended(self, job: str) -> str:
        """Wait for a job's end, whoever owns it; its state."""
        deadline = time.monotonic() + UNTIL_SECONDS_MAX
        while time.monotonic() < deadline:
            for name in BROKERS:
                status, answer = self.live.broker(name).raw("GET", f"/v1/jobs/{job}/wait?timeout=1")
                row = msgspec.json.decode(answer) if status == 200 else {}
                if row.get("ended") is not None:
                    return str(row["state"])
        raise AssertionError(f"{job} has not ended")

    def attempts(self, job: str) -> dict[str, int]:
        """A job's tasks, each with the attempt that counted, as its owner tells it."""
        return {f"{job}.{task['index']}": task["attempt"] for task in self.live.tasks(job, self.owner(job))}

    def judge(self, done: dict[str, int]) -> None:
        """Nothing ran twice at once, no node held too much, and what counts as done was done."""
        assert not (wrong := complaints(lives(self.log), done, SLOTS)), wrong


@contextmanager
def at_sea(brokers: Sequence[str], clusters: Sequence[str]) -> Iterator[Sea]:
    """A league that is up, every member on a host of its own, and the calling thread on the user's."""
    with network((*brokers, *clusters, USER)) as net, open_directory() as directory:
        log = directory / "lives"
        log.touch()
        log.chmod(0o666)
        description = _description(net, brokers, clusters)
        with net.inside(USER), running(directory / "home", description, place=net.prefix) as live:
            yield Sea(live, net, log)


@pytest.fixture(scope="module")
def league() -> Iterator[Sea]:
    with at_sea(BROKERS, CLUSTERS) as made:
        yield made


@pytest.fixture
def sea(league: Sea) -> Iterator[Sea]:
    """The league with a whole network and an empty file; every broker has just used every cluster."""
    league.net.heal()
    for broker in BROKERS:
        for cluster in CLUSTERS:
            job = league.live.submit({"command": "true", "clusters": {"allow": [cluster]}}, broker)
            assert league.live.wait(job, broker)["state"] == "succeeded"
    league.log.write_bytes(b"")
    yield league
    league.net.heal()


def test_the_network_does_what_it_is_told() -> None:
    """The network itself: cuts are one way, slow links are slow and in order, and nothing stays behind."""
    with network(("a", "b")) as net, ExitStack() as held:
        places = {host: (net.address(host), 7400) for host in net.hosts}
        ends: dict[str, socket.socket] = {}
        for host in net.hosts:
            with net.inside(host):
                ends[host] = held.enter_context(socket.socket(type=socket.SOCK_DGRAM))
                ends[host].bind(places[host])
                ends[host].settimeout(UNTIL_SECONDS_MAX)

        def say(word: bytes, source: str, target: str) -> None:
            ends[source].sendto(word, places[target])

        net.cut("a", "b")
        say(b"lost", "a", "b")
        say(b"heard", "b", "a")
        assert ends["a"].recv(100) == b"heard"
        _until(lambda: net.lost["a", "b"] == 1)
        net.heal()
        net.slow("a", "b", Way(delay_seconds=0.1, bits_per_second=80_000))
        before = time.monotonic()
        for number in range(5):
            say(bytes([number]) * 958, "a", "b")  # 1,000 bytes with their headers
        assert [ends["b"].recv(1_000)[0] for _ in range(5)] == list(range(5))
        assert time.monotonic() - before >= 0.1 + 5 * 0.1
        assert len(_left_by(net)) == len(net.hosts)
    assert not _left_by(net)


@pytest.mark.parametrize(("source", "target"), [("north", "b1"), ("b1", "north")])
def test_a_cluster_that_can_only_hear_or_only_be_heard_runs_nothing_twice(
    sea: Sea, source: str, target: str
) -> None:
    live, net = sea.live, sea.net
    long = live.submit(sea.linger(count=8, clusters={"prefer": ["north"]}))
    short = live.submit(sea.tell("0.01", count=52))
    _until(lambda: sea.begun(long, "north") >= 4)
    net.cut(source, target)
    # For the other broker nothing has changed.
    other = sea.succeeded(live.submit(sea.tell("0.1", count=4, clusters={"allow": ["north"]}), "b2"), "b2")
    done = sea.succeeded(short, "b1")
    # What the cut-off cluster had must have run again elsewhere, or this would not come back.
    done |= sea.succeeded(long, "b1")
    assert net.lost[source, target] > 0
    assert sea.moved(long, done), "the cluster was cut off while it ran something"
    net.heal()
    again = sea.succeeded(live.submit(sea.tell("0.01", count=8, clusters={"allow": ["north"]})), "b1")
    assert len(done) == 60
    sea.judge({**other, **done, **again})


def test_a_cluster_without_the_league_ends_what_moves_and_finishes_what_waits(sea: Sea) -> None:
    live, net = sea.live, sea.net
    waits = live.submit(sea.linger(count=3, unreachable="wait", clusters={"allow": ["north"]}))
    _until(lambda: live.broker().ask("GET", f"/v1/jobs/{waits}")["row"]["running"] == 3)
    clusters = {"prefer": ["north"]}
    moves = live.submit(sea.linger(MORE_WORDS, count=5, unreachable="move", clusters=clusters), "b2")
    _until(lambda: sea.begun(moves, "north") >= 2)
    net.part("north", *BROKERS, USER)
    cut = time.time_ns()
    moved = sea.succeeded(moves, "b2")
    assert sea.moved(moves, moved), "the cluster was cut off while it ran something"
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


def test_brokers_that_have_lost_each_other_lose_no_job_and_run_none_twice(sea: Sea) -> None:
    """Each suspects the other. Who does so first adopts the other's jobs, and goes on as if it were alone;
    the other may have to keep new submitters waiting until the network is whole."""
    live, net = sea.live, sea.net
    early = [live.submit(sea.linger(count=8), name) for name in BROKERS]
    _until(lambda: all(len(sea.lives(job)) == 8 for job in early))
    early += [live.submit(sea.tell("0.1", count=8), name) for name in BROKERS]  # no room for these yet
    net.part(*BROKERS)
    with ThreadPoolExecutor(len(BROKERS)) as threads:
        futures = [threads.submit(_submit, sea, name, 10) for name in BROKERS]
        finished, _ = wait(futures, UNTIL_SECONDS_MAX, FIRST_COMPLETED)
        assert finished, "a broker that sees every warden takes jobs"
        assert net.lost["b1", "b2"] > 0
        assert net.lost["b2", "b1"] > 0
        for future in finished:
            assert [sea.ended(job) for job in future.result()] == ["succeeded"] * 10
        net.heal()
        late = [job for future in futures for job in future.result()]
    assert len(dict.fromkeys(late)) == 20
    done: dict[str, int] = {}
    for job in (*early, *late):
        assert sea.ended(job) == "succeeded"
        done |= sea.attempts(job)
    assert len(done) == 72
    sea.judge(done)
    # Every warden could be reached all the time, so there was no reason to do anything again.
    assert Counter(life.task for life in lives(sea.log) if life.finished) == dict.fromkeys(done, 1)


def _submit(sea: Sea, broker: str, count: int) -> list[str]:
    """Submit jobs as a client does who gets no certain answer: again, with the same client id."""
    jobs: list[str] = []
    with sea.net.inside(USER), closing(Door(sea.live, Role.BROKER, broker)) as door:
        for number in range(count):
            spec = sea.tell("0.1", count=2, client_id=f"{broker}-{number}")
            deadline = time.monotonic() + UNTIL_SECONDS_MAX
            while len(jobs) == number:
                result = door.ask("POST", "/v1/jobs", {"jobs": [spec]})["results"][0]
                assert "job" in result or (result["unsure"] and time.monotonic() < deadline), result
                jobs += [result["job"]] if "job" in result else []
    return jobs


def _description(net: Network, brokers: Sequence[str], clusters: Sequence[str]) -> str:
    """The league file: every member on its host."""

    def entry(host: str, *more: str) -> str:
        words = (f"name: {host}", *(f'{door}: "{net.address(host)}:{port}"' for door, port in PORTS), *more)
        return f"  - {{{', '.join(words)}}}"

    return "\n".join(
        [
            f"timings: {TIMINGS}",
            "brokers:",
            *(entry(name) for name in brokers),
            "clusters:",
            *(entry(name, "nodes: [{count: 2, cpus: 4, memory: 512MiB}]") for name in clusters),
        ]
    )


def _left_by(net: Network) -> list[Path]:
    return [path for path in Path("/run/netns").iterdir() if path.name.startswith(net.name)]


def _until(condition: Callable[[], bool]) -> None:
    """Look at the outside world until it is as it should be."""
    deadline = time.monotonic() + UNTIL_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)  # there is nothing to await
