"""Clients of a soak: they submit mixed jobs, repeat what was not answered, ask, cancel, and keep a record."""

import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from tests.live.harness import Door, LiveLeague

from hanse.security.identity import Role
from tools.soak.history import TERMINAL, Answer
from tools.soak.setting import BROKERS, CLUSTERS, NODES

ANSWER_SECONDS = 6.0
"""How long a client waits for an answer before it asks somebody else."""
OPEN_MAX = 8
"""Jobs of one client that have not ended: with more it waits, so that there is no backlog without end."""
REPEAT_SECONDS_MAX = 90.0
"""How long a client repeats what was not answered; then it gives up, and nothing was promised."""
CANCELLED_SHARE = 0.08
ONCE_SHARE = 0.4
"""Of the jobs that are neither gangs nor preemptible: they say ``on_loss: fail``."""
REPEATED_SHARE = 0.15
"""Of the answered submissions: they are made once more at the same broker, which must give the same job."""


class Record:
    """What all clients were told; shared by their threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.answers: list[Answer] = []
        self.counts: dict[str, int] = {}
        self.once: dict[str, None] = {}
        """Client ids of jobs that must not run twice after a loss."""
        self.cancelled: dict[str, None] = {}
        self.told: dict[tuple[str, str], None] = {}
        self.seconds: list[float] = []
        """From the first word of each submission to its answer, repetitions included."""
        self.refusals: Counter[str] = Counter()
        self.crashes: list[str] = []

    def answered(self, answer: Answer) -> None:
        """A broker has taken a job."""
        with self._lock:
            self.answers.append(answer)

    def refused(self, reason: str) -> None:
        """A broker has not; the reason."""
        with self._lock:
            self.refusals[reason[:80]] += 1


class Client(threading.Thread):
    """One client. ``done``: it submits no more, finishes its repetitions and ends."""

    def __init__(self, number: int, seed: int, live: LiveLeague, record: Record, work: "Work") -> None:
        super().__init__(name=f"client-{number}")
        self._number = number
        self._choose = random.Random(f"{seed}/client/{number}")
        self._doors = {name: Door(live, Role.BROKER, name, ANSWER_SECONDS) for name in BROKERS}
        self._record, self._work = record, work
        self._open: list[str] = []
        self._cancels: list[tuple[float, str]] = []
        self.done = threading.Event()

    def run(self) -> None:
        """Submit, ask and cancel until the end."""
        try:
            count = 0
            while not self.done.wait(self._choose.expovariate(1 / self._work.pause)):
                self._look()
                if len(self._open) < OPEN_MAX:
                    count += 1
                    self._submit(f"soak-{self._number}-{count}")
                self._cancel_due()
        except Exception as error:  # noqa: BLE001  a client that dies in silence would make the soak blind
            self._record.crashes.append(f"{self.name}: {error!r}")
        finally:
            for door in self._doors.values():
                door.close()

    def _submit(self, client_id: str) -> None:
        form = {**self._work.draw(self._choose), "client_id": client_id}
        self._record.counts[client_id] = form["count"]
        if "on_loss" in form:
            self._record.once[client_id] = None
        broker = self._choose.choice(BROKERS)
        began = time.monotonic()
        while (job := self._ask(broker, form)) is None:
            if time.monotonic() - began > REPEAT_SECONDS_MAX:
                self._record.refused("given up")
                return
            if time.monotonic() - began > ANSWER_SECONDS or self._choose.random() < 0.3:
                broker = self._choose.choice(BROKERS)
            time.sleep(self._choose.uniform(0.05, 0.5))  # others have their turn; there is nothing to await
        self._record.seconds.append(time.monotonic() - began)
        self._open.append(job)
        if self._choose.random() < REPEATED_SHARE:
            self._ask(broker, form)
        if self._choose.random() < CANCELLED_SHARE:
            self._cancels.append((time.monotonic() + self._choose.uniform(0, 5), job))

    def _ask(self, broker: str, form: dict[str, Any]) -> str | None:
        """Submit once; the job, or None: nobody has said that it is taken."""
        try:
            status, body = self._doors[broker].raw("POST", "/v1/jobs", {"jobs": [form]})
        except OSError as error:
            self._record.refused(f"no answer: {type(error.__cause__).__name__}")
            return None
        answer = msgspec.json.decode(body)
        if status != 200:
            self._record.refused(f"{status} {answer.get('error', answer)}")
            return None
        result = answer["results"][0]
        if "job" not in result:
            self._record.refused(f"refused: {result.get('refused', result)}")
            return None
        job = str(result["job"])
        at = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._record.answered(Answer(form["client_id"], broker, job, at))
        return job

    def _look(self) -> None:
        """Ask some broker how the oldest jobs are."""
        for job in self._open[:3]:
            try:
                broker = self._choose.choice(BROKERS)
                status, body = self._doors[broker].raw("GET", f"/v1/jobs/{job}?local=1")
            except OSError:
                continue
            if status == 200 and (state := msgspec.json.decode(body)["row"]["state"]) in TERMINAL:
                self._record.told[(job, state)] = None
                self._open.remove(job)

    def _cancel_due(self) -> None:
        for due, job in list(self._cancels):
            if due > time.monotonic():
                continue
            self._record.cancelled[job] = None
            for broker in BROKERS:
                try:
                    status, _ = self._doors[broker].raw("POST", f"/v1/jobs/{job}/cancel")
                except OSError:
                    continue
                if status == 200:
                    self._cancels.remove((due, job))
                    break


class Work:
    """Jobs to draw from. ``pause``: seconds between two jobs of a client, on average; ``longest``: seconds of
    the longest task."""

    def __init__(self, program: Path, log: Path, pause: float, longest: float) -> None:
        self._program, self._log = str(program), str(log)
        self.pause, self._longest = pause, longest

    def draw(self, choose: random.Random) -> dict[str, Any]:
        """A job: most short and plain, some gangs, failures, preemptible and urgent ones, and some that must
        not run twice."""
        seconds = min(self._longest, 0.1 * (200 ** choose.random()))
        cpu, slots = choose.choice([250, 500, 1_000, 2_000]), choose.choice([1, 1, 1, 2, 2, 3])
        failures = choose.choice([0] * 8 + [1, 2])
        code = choose.choice([0] * 14 + [5])
        words = (self._program, self._log, int(seconds * 1_000), code, failures, cpu, slots)
        form: dict[str, Any] = {
            "command": [str(word) for word in words],
            "count": choose.randint(1, 6),
            "cpus": cpu / 1_000,
            "resources": {"slots": slots},
            "retries": choose.choice([failures, failures, 3]),
            "priority": choose.choice([0, 0, 0, 5, -5]),
        }
        if choose.random() < 0.15:
            form |= {"gang": True, "count": choose.randint(2, NODES)}  # one on each node always fits
        elif choose.random() < 0.3:
            form |= {"preemptible": True, "priority": -10}
        elif choose.random() < ONCE_SHARE:
            form["on_loss"] = "fail"
        if choose.random() < 0.1:
            form["clusters"] = {"allow": [choose.choice(CLUSTERS)]}
        if choose.random() < 0.1:
            form["unreachable"] = "wait"
        return form
