"""What happened in a soak: what clients were told, what tasks wrote, what the league says at the end."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

TERMINAL = ("succeeded", "failed", "cancelled")


class Answer(msgspec.Struct, frozen=True):
    """A broker's word that it has a job."""

    client_id: str
    broker: str
    job: str
    at: int
    """Nanoseconds since the machine's start, as everywhere here."""


class Life(msgspec.Struct, frozen=True):
    """One process of a task, as far as it could tell."""

    task: str
    """``1-7.0``: job and index."""
    attempt: int
    node: str
    """``north/0``."""
    pid: int
    begin: int
    last: int
    """Its last sign of life; one comes every 50 ms."""
    code: int | None
    """With which it said that it ends; None: it never did."""
    asks: dict[str, int]
    """Resource -> how much of its node it was given."""


class TaskEnd(msgspec.Struct, frozen=True):
    """A task as the league tells it at the end."""

    index: int
    state: str
    attempt: int
    code: int | None = None
    note: str = ""


class JobEnd(msgspec.Struct, frozen=True):
    """A job as the league tells it at the end."""

    job: str
    state: str
    """Empty: no broker knows of it."""
    tasks: tuple[TaskEnd, ...] = ()
    owner: str = ""
    """The broker that acts for it."""


class History(msgspec.Struct, frozen=True):
    """All that the checker looks at."""

    answers: tuple[Answer, ...] = ()
    lives: tuple[Life, ...] = ()
    ends: dict[str, JobEnd] = {}
    """Of every acknowledged job."""
    counts: dict[str, int] = {}
    """Client id -> how many tasks it asked for."""
    once: frozenset[str] = frozenset()
    """Client ids of jobs that say ``on_loss: fail``; no gangs and nothing preemptible, which start anew by
    right."""
    cancelled: frozenset[str] = frozenset()
    """Jobs that somebody asked to cancel, whatever was answered."""
    told: tuple[tuple[str, str], ...] = ()
    """Jobs that a broker called ended while faults went on, and in which state."""
    room: dict[str, dict[str, int]] = {}
    """Node -> resource -> how much it has."""


def parse_lives(lines: Iterable[str]) -> list[Life]:
    """Every process that ever spoke, in the order of their first words."""
    said: dict[tuple[str, ...], list[tuple[int, str, int]]] = defaultdict(list)
    for line in lines:
        *who, at, word, code = line.split()
        said[tuple(who)].append((int(at), word, int(code)))
    found = [_life(who, words) for who, words in said.items()]
    return sorted(found, key=lambda life: life.begin)


def _life(who: tuple[str, ...], words: list[tuple[int, str, int]]) -> Life:
    task, attempt, node, pid, cpu, slots = who
    codes = [code for _, word, code in words if word == "end"]
    return Life(
        task=task,
        attempt=int(attempt),
        node=node,
        pid=int(pid),
        begin=min(words)[0],
        last=max(words)[0],
        code=codes[0] if codes else None,
        asks={"cpu": int(cpu), "slots": int(slots)},
    )
