"""Every member is restarted, one after another, while people submit all the time: nobody need notice.

Leases are long here, so that only a mistake can end a task, and not a busy machine.
"""

import signal
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec

from hanse.security.identity import Role
from tests.live.execution_log import command, complaints, lives
from tests.live.harness import Door, LiveLeague, open_directory, running

LEAGUE = """
timings: {runner_lease: 120s, cluster_lease: 240s}
brokers: [{name: b1}, {name: b2}, {name: b3}]
clusters:
  - {name: north, nodes: [{count: 2, cpus: 6, memory: 1GiB, attributes: {zone: north}}]}
  - name: south
    runners: [{name: far}]
    nodes:
      - {cpus: 6, memory: 1GiB, attributes: {zone: near}}
      - {cpus: 6, memory: 1GiB, attributes: {zone: far}, runner: far}
"""
BROKERS = ("b1", "b2", "b3")
MEMBERS = (*BROKERS, "north", "south", "far")
"""In the order of docs/operator/upgrades.md."""
SLOTS = {f"{cluster}/{node}": 6 for cluster in ("north", "south") for node in (0, 1)}
ZONES = ("north", "near", "far")
LONG_TASKS = 2
"""In each zone, that run from the first restart to the last."""
MEANWHILE = 4
"""Jobs that are acknowledged, and others that end, between two restarts."""
SECONDS_MAX = 180.0
"""Longer than anything here takes on a busy machine; reached only by a failure."""
PAUSE_SECONDS = 0.1
"""Between two jobs of one submitter, and before a broker is asked again that was not there."""


class Submitter(threading.Thread):
    """Submits at one broker, each job with an id of its own, and repeats each until it is taken."""

    def __init__(self, live: LiveLeague, broker: str, log: Path) -> None:
        super().__init__()
        self._door = Door(live, Role.BROKER, broker)
        self._broker = broker
        self._job = {"memory": "16MiB", "command": command(log, "0.5")}
        self.enough = threading.Event()
        self.taken: dict[str, set[str]] = defaultdict(set)
        """Client id -> the jobs that it was told for it."""
        self.again = 0
        """How often it had to ask again."""

    def run(self) -> None:
        number = 0
        while not self.enough.wait(PAUSE_SECONDS):
            number += 1
            name = f"{self._broker}-{number}"
            self._submit(name)
            if number % 5 == 0:
                self._submit(name)  # as somebody who has not heard the answer
        self._door.close()

    def _submit(self, name: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            job = self._asked(name)
            if job:
                self.taken[name].add(job)
                return
            self.again += 1
            time.sleep(PAUSE_SECONDS)  # the outside world: there is nothing to await
        self.taken[name].add("never")

    def _asked(self, name: str) -> str:
        """The job that a broker answers with; empty: it did not, or not yet."""
        wish = {"jobs": [{**self._job, "client_id": name}]}
        try:
            status, body = self._door.raw("POST", "/v1/jobs", wish)
        except OSError:
            return ""
        result: dict[str, Any] = msgspec.json.decode(body)["results"][0] if status == 200 else {}
        return str(result.get("job", ""))


def long_life(log: Path, gate: Path) -> str:
    """A command that tells its life to the log (see ``execution_log``) until there is a gate."""
    who = "$HANSE_JOB.$HANSE_TASK $HANSE_ATTEMPT $HANSE_CLUSTER/$HANSE_NODE"
    say = f'say() {{ echo "{who} $(date +%s%N) $1" >> {log}; }}'
    return f"{say}; say begin; until [ -e {gate} ]; do sleep 0.5; say alive; done; say end"


def ends(log: Path) -> int:
    return sum(line.endswith(" end") for line in log.read_text(encoding="ascii").splitlines())


def restart_each(live: LiveLeague, submitters: list[Submitter], log: Path) -> None:
    """One after the other, each when the league works again after the last."""
    for name in MEMBERS:
        acknowledged = sum(len(one.taken) for one in submitters)
        ended = ends(log)
        live.kill(name, signal.SIGTERM)
        live.start(name).settle()
        deadline = time.monotonic() + SECONDS_MAX
        while (
            sum(len(one.taken) for one in submitters) < acknowledged + MEANWHILE
            or ends(log) < ended + MEANWHILE
        ):
            assert time.monotonic() < deadline, f"nothing goes on after {name} came back"
            time.sleep(PAUSE_SECONDS)  # the outside world: there is nothing to await


def done_by(live: LiveLeague, job: str) -> dict[str, int]:
    """A job's tasks and the attempts that counted, as whoever speaks for it says."""
    for name in BROKERS:
        if live.broker(name).raw("GET", f"/v1/jobs/{job}")[0] == 200:
            row = live.wait(job, name)
            assert row["state"] == "succeeded", (row, live.tasks(job, name))
            return {f"{job}.{task['index']}": task["attempt"] for task in live.tasks(job, name)}
    raise AssertionError(f"nobody speaks for {job}")


def test_every_member_is_restarted_under_load_and_nothing_is_lost() -> None:
    with open_directory() as directory, running(directory / "home", LEAGUE) as live:
        log, gate = directory / "lives", directory / "gate"
        log.touch()
        log.chmod(0o666)  # tasks are nobody
        long = {"count": LONG_TASKS, "memory": "16MiB", "command": long_life(log, gate)}
        lasting = [
            live.submit({**long, "where": f'zone == "{zone}"'}, broker)
            for zone, broker in zip(ZONES, BROKERS, strict=True)
        ]
        deadline = time.monotonic() + SECONDS_MAX
        while len(lives(log)) < len(lasting) * LONG_TASKS:
            assert time.monotonic() < deadline, "the long tasks did not begin"
            time.sleep(PAUSE_SECONDS)  # the outside world: there is nothing to await
        submitters = [Submitter(live, name, log) for name in BROKERS]
        for one in submitters:
            one.start()
        try:
            restart_each(live, submitters, log)
        finally:
            for one in submitters:
                one.enough.set()
            for one in submitters:
                one.join()
            gate.touch()

        taken = {name: jobs for one in submitters for name, jobs in one.taken.items()}
        assert all(len(jobs) == 1 for jobs in taken.values()), "a client id stands for one job"
        jobs = [job for found in taken.values() for job in found]
        assert len(set(jobs)) == len(jobs), "a job has one client id"
        assert sum(one.again for one in submitters) > 0, "the brokers were away while people submitted"

        done: dict[str, int] = {}
        for job in (*lasting, *jobs):
            done |= done_by(live, job)
        found = lives(log)
        assert not (wrong := complaints(found, done, SLOTS)), wrong
        assert {life.task for life in found} == set(done), "what ran is what was acknowledged"
        begun = Counter(life.task for life in found)
        assert set(begun.values()) == {1}, "no task began a second time"
        survived = [life for life in found if life.task.rpartition(".")[0] in lasting]
        assert [life.attempt for life in survived if life.finished] == [1] * (len(lasting) * LONG_TASKS)
        assert [life.node for life in survived].count("south/1") == LONG_TASKS, "the runner's node had some"
