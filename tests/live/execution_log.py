"""What tasks say of themselves: each writes lines into one file while it runs, and a judge reads them.

A line is ``task attempt cluster/node nanoseconds word``; the words are ``begin``, then ``alive`` a few times,
then ``end``. Lines are short and appended in one write, so that they never mix.
"""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ALIVE_TIMES = 3


def command(log: Path, pause: str, times: str = str(ALIVE_TIMES)) -> str:
    """A shell command that tells its life to the log; ``pause`` seconds between its words. ``times``: how
    often it says that it is alive, a number or arithmetic of the shell."""
    who = "$HANSE_JOB.$HANSE_TASK $HANSE_ATTEMPT $HANSE_CLUSTER/$HANSE_NODE"
    say = f'say() {{ echo "{who} $(date +%s%N) $1" >> {log}; }}'
    alive = f"n=$(({times})); while [ $n -gt 0 ]; do sleep {pause}; say alive; n=$((n - 1)); done"
    return f"{say}; say begin; {alive}; say end"


class Life(NamedTuple):
    """One attempt as far as it could tell."""

    task: str
    attempt: int
    node: str
    begin: int
    last: int
    """Its last sign of life."""
    finished: bool


def lives(log: Path) -> list[Life]:
    """Every attempt that ever spoke."""
    lines: dict[tuple[str, int, str], list[tuple[int, str]]] = defaultdict(list)
    for line in log.read_text(encoding="ascii").splitlines():
        task, attempt, node, at, word = line.split()
        lines[(task, int(attempt), node)].append((int(at), word))
    return [
        Life(task, attempt, node, min(said)[0], max(said)[0], any(word == "end" for _, word in said))
        for (task, attempt, node), said in lines.items()
    ]


def complaints(found: list[Life], tasks: dict[str, int], slots: dict[str, int]) -> list[str]:
    """What broke a promise. ``tasks``: each task that succeeded and the attempt that counted; ``slots``: how
    many tasks each node may hold at once."""
    wrong: list[str] = []
    by_task: dict[str, list[Life]] = defaultdict(list)
    for life in found:
        by_task[life.task].append(life)
    for task, attempt in tasks.items():
        if not any(life.attempt == attempt and life.finished for life in by_task[task]):
            wrong.append(f"{task} counts as done by attempt {attempt}, which never said so")
    for task, attempts in by_task.items():
        attempts.sort(key=lambda life: life.begin)
        wrong += [
            f"{task}: attempt {late.attempt} began while attempt {early.attempt} lived"
            for early, late in pairwise(attempts)
            if late.begin <= early.last
        ]
    for node, most in slots.items():
        steps = sorted(
            step
            for life in found
            if life.node == node
            for step in ((life.begin, 1), (life.last + 1, -1))
        )  # fmt: skip
        held = 0
        for at, step in steps:
            held += step
            if held > most:
                wrong.append(f"{node} held {held} tasks at {at}, and has room for {most}")
                break
    return wrong
