"""One soak from its beginning to its verdict."""

import time
from collections import Counter
from typing import Any, NamedTuple

import msgspec
from tests.live.harness import Door

from hanse.security.identity import Role
from tools.soak.checker import (
    Violation,
    adopted,
    codes_unknown,
    completed_twice,
    lost_and_failed,
    second_jobs,
    violations,
)
from tools.soak.clients import ANSWER_SECONDS, Client, Record, Work
from tools.soak.faults import Faults
from tools.soak.history import TERMINAL, History, JobEnd, TaskEnd, parse_lives
from tools.soak.setting import BROKERS, ROOM, Setting, setting

PROGRESS_SECONDS = 5.0
QUIET_SECONDS_MAX = 300.0
"""After the last fault everything must have ended by then."""


class Options(NamedTuple):
    """What a soak is like. It repeats its choices by the seed; when things happen is up to the machine."""

    seconds: float
    seed: int
    clients: int = 4
    pause: float = 2.0
    """Seconds between two jobs of a client, on average."""
    fault_pause: float = 3.0
    """Seconds between two faults, on average."""
    longest: float = 20.0
    """Seconds of the longest tasks."""


class Outcome(NamedTuple):
    """What came out."""

    history: History
    violations: list[Violation]
    faults: list[tuple[int, str]]
    figures: dict[str, Any]


def soak(options: Options) -> Outcome:
    """Run a league under clients and faults, and judge it."""
    began = time.monotonic()
    with setting() as place:
        record = Record()
        work = Work(place.program, place.log, options.pause, options.longest)
        clients = [
            Client(number, options.seed, place.live, record, work) for number in range(options.clients)
        ]
        faults = Faults(options.seed, place, options.fault_pause)
        for thread in (*clients, faults):
            thread.start()
        try:
            _watch(began, options.seconds, record, faults)
        finally:
            faults.done.set()
            for client in clients:
                client.done.set()
            for thread in (faults, *clients):
                thread.join()
        quiet = time.monotonic()
        history = _gather(place, record)
        waited = time.monotonic() - quiet
    found = violations(history)
    found += [Violation("member", "a member", text) for text in faults.failures]
    found += [Violation("soak", "the soak itself", text) for text in record.crashes]
    figures = _figures(options, history, record, faults.counts, found)
    figures |= {"quiet_seconds": round(waited, 1), "seconds": round(time.monotonic() - began, 1)}
    return Outcome(history, found, faults.log, figures)


def _watch(began: float, seconds: float, record: Record, faults: Faults) -> None:
    """Tell how it goes until the time is over, or something has happened that ends it."""
    end = time.monotonic() + seconds
    shown = 0
    while (left := end - time.monotonic()) > 0 and not (faults.failures or record.crashes):
        time.sleep(min(left, PROGRESS_SECONDS))  # the length of a soak is its point
        latest = "; ".join(text for _, text in faults.log[shown:])
        shown = len(faults.log)
        jobs, refusals = len(record.answers), sum(record.refusals.values())
        head = f"{time.monotonic() - began:6.0f} s  {jobs} acknowledged, {refusals} unanswered or refused"
        print(
            f"{head}, {len(record.told)} known to have ended, {faults.counts.total()} faults  {latest}",
            flush=True,
        )


# --- what the league says at the end ------------------------------------------------------------------------


def _gather(place: Setting, record: Record) -> History:
    """Wait until all acknowledged jobs have ended, or the quiet time is over, and ask for everything."""
    doors = [Door(place.live, Role.BROKER, name, ANSWER_SECONDS) for name in BROKERS]
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    ends: dict[str, JobEnd] = {}
    try:
        for job in dict.fromkeys(answer.job for answer in record.answers):
            while (end := _end_of(doors, job)).state not in TERMINAL and time.monotonic() < deadline:
                time.sleep(0.2)  # the outside world: there is nothing to await
            ends[job] = end
    finally:
        for door in doors:
            door.close()
    with place.log.open(encoding="ascii") as lines:
        lives = parse_lives(lines)
    return History(
        answers=tuple(record.answers),
        lives=tuple(lives),
        ends=ends,
        counts=record.counts,
        once=frozenset(record.once),
        cancelled=frozenset(record.cancelled),
        told=tuple(record.told),
        room=ROOM,
    )


def _end_of(doors: list[Door], job: str) -> JobEnd:
    """What the broker that acts for a job says of it."""
    silent = False
    for door in doors:
        try:
            status, body = door.raw("GET", f"/v1/jobs/{job}")
            silent |= status not in (200, 404)  # it points at another, who may not be back
            if status != 200:
                continue
            row = msgspec.json.decode(body)["row"]
            status, body = door.raw("GET", f"/v1/jobs/{job}/tasks?limit=1000")
        except OSError:
            silent = True
            continue
        if status == 200:
            tasks = tuple(msgspec.convert(row, TaskEnd) for row in msgspec.json.decode(body)["tasks"])
            return JobEnd(job, row["state"], tasks, row["owner"])
    return JobEnd(job, "without a broker that acts for it" if silent else "")


# --- figures ------------------------------------------------------------------------------------------------


def _figures(
    options: Options, history: History, record: Record, faults: Counter[str], found: list[Violation]
) -> dict[str, Any]:
    waits = sorted(record.seconds)
    states = Counter(end.state for end in history.ends.values())
    return {
        "seed": options.seed,
        "jobs": len(history.ends),
        "jobs_by_state": dict(sorted(states.items())),
        "tasks": sum(len(end.tasks) for end in history.ends.values()),
        "attempts": len(history.lives),
        "attempts_cut_short": sum(life.code is None for life in history.lives),
        "completed_twice": completed_twice(history.lives),
        "lost_and_failed": lost_and_failed(history),
        "adopted": adopted(history),
        "codes_unknown": codes_unknown(history),
        "client_ids_with_two_jobs": second_jobs(history),
        "faults": dict(sorted(faults.items())),
        "submissions_repeated": sum(record.refusals.values()),
        "reasons": dict(record.refusals.most_common(12)),
        "submit_seconds": {
            "p50": _share(waits, 0.5), "p99": _share(waits, 0.99), "max": _share(waits, 1.0)
        },
        "violations": dict(sorted(Counter(one.kind for one in found).items())),
    }  # fmt: skip


def _share(values: list[float], share: float) -> float:
    """The value below which this share of the sorted values is; 0 if there is none."""
    return round(values[min(len(values) - 1, int(share * len(values)))], 4) if values else 0.0
