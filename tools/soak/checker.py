"""The checker of a soak: pure, from the history to the promises that were broken.

The promises are those of README: nothing acknowledged is lost, everything ends, attempts of a task never live
at the same time, what must not run twice after a loss does not, no node holds more than it has, and the
league tells what really happened.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from tools.soak.history import TERMINAL, History, JobEnd, Life, TaskEnd

LOSS_CODES = (None, 0, -9)
"""What the league tells as the code of a lost attempt: none, that of nothing, or that of its watchdog's kill.
Tasks here end with none of them when they fail."""


class Violation(msgspec.Struct, frozen=True):
    """A broken promise."""

    kind: str
    """One of a few words, by which violations are counted."""
    subject: str
    """The job, task, node or client id."""
    sentence: str
    at: int = 0
    """When, in nanoseconds since the machine's start; 0: at no one moment."""


def violations(history: History) -> list[Violation]:
    """Everything that must not have happened."""
    return [
        *_ids(history),
        *_fates(history),
        *_changes(history),
        *_overlaps(history.lives),
        *_again(history),
        *_overcommitted(history),
        *_words(history),
    ]


def completed_twice(lives: tuple[Life, ...]) -> int:
    """Tasks that ended well more than once, one attempt after the other: allowed, and worth counting."""
    ends: dict[str, int] = defaultdict(int)
    for life in lives:
        ends[life.task] += life.code == 0
    return sum(count > 1 for count in ends.values())


def codes_unknown(history: History) -> list[str]:
    """Failed tasks whose code the league does not tell, and who speaks for them; see ``_is_told``."""
    once = _once(history)
    return [
        f"{job}.{task.index} by {end.owner}"
        for job, end in history.ends.items()
        for task in end.tasks
        if task.state == "failed" and task.code is None and job not in once
    ]


def lost_and_failed(history: History) -> int:
    """Tasks that failed because they may have begun, were lost, and must not run twice."""
    ends = (history.ends[job] for job in _once(history) if job in history.ends)
    return sum(_is_loss(task) for end in ends for task in end.tasks)


def _is_loss(task: TaskEnd) -> bool:
    """Whether a task has failed with no code of its own: lost, perhaps before it wrote anything."""
    return task.state == "failed" and task.code in LOSS_CODES


def adopted(history: History) -> int:
    """Jobs that another broker speaks for at the end than the one that took them."""
    takers = {answer.job: answer.broker for answer in reversed(history.answers)}
    return sum(end.owner not in ("", takers.get(job)) for job, end in history.ends.items())


def second_jobs(history: History) -> int:
    """Client ids that became two jobs, as repetitions at another broker may: brokers do not compare them."""
    jobs: dict[str, dict[str, None]] = defaultdict(dict)
    for answer in history.answers:
        jobs[answer.client_id][answer.job] = None
    return sum(len(found) > 1 for found in jobs.values())


def story(history: History, subject: str) -> list[str]:
    """All that is known of a job or a task, or of a client id, in the order of time."""
    job = subject.partition(".")[0]
    jobs = {job, *(answer.job for answer in history.answers if answer.client_id == subject)}
    rows: list[tuple[int, str]] = [
        (answer.at, f"{answer.broker} takes {answer.client_id} as {answer.job}")
        for answer in history.answers
        if answer.job in jobs
    ]
    for life in history.lives:
        if subject in (life.task, life.node) or life.task.partition(".")[0] in jobs:
            who = f"{life.task} attempt {life.attempt} on {life.node} (pid {life.pid}, {life.asks})"
            rows.append((life.begin, f"{who} begins"))
            end = "last sign of life" if life.code is None else f"ends with {life.code}"
            rows.append((life.last, f"{who} {end}"))
    lines = [f"{at / 1e9:.3f} {text}" for at, text in sorted(rows)]
    lines += [f"at the end: {history.ends[name]}" for name in sorted(jobs) if name in history.ends]
    return lines


def _ids(history: History) -> Iterator[Violation]:
    """One client id at one broker is one job; one job is of one client id."""
    jobs: dict[tuple[str, str], str] = {}
    owners: dict[str, str] = {}
    for answer in history.answers:
        first = jobs.setdefault((answer.client_id, answer.broker), answer.job)
        if first != answer.job:
            text = f"{answer.broker} calls {answer.client_id} first {first} and then {answer.job}"
            yield Violation("another id", answer.client_id, text)
        owner = owners.setdefault(answer.job, answer.client_id)
        if owner != answer.client_id:
            text = f"{answer.job} stands for {owner} and for {answer.client_id}"
            yield Violation("one id for two", answer.job, text)


def _fates(history: History) -> Iterator[Violation]:
    """Acknowledged jobs are there with all their tasks, and have ended."""
    for job, client_id in {answer.job: answer.client_id for answer in history.answers}.items():
        end = history.ends.get(job, JobEnd(job, ""))
        if not end.state:
            yield Violation("lost", job, f"{job} ({client_id}) was acknowledged, and no broker knows it")
        elif end.state not in TERMINAL:
            yield Violation("not ended", job, f"{job} is still {end.state} after the quiet time")
        elif len(end.tasks) != history.counts.get(client_id, len(end.tasks)):
            text = f"{job} has {len(end.tasks)} tasks, and {history.counts[client_id]} were asked for"
            yield Violation("lost", job, text)
        else:
            for task in end.tasks:
                if task.state not in TERMINAL:
                    text = f"{job} is {end.state}, and its task {task.index} is {task.state}"
                    yield Violation("not ended", f"{job}.{task.index}", text)
        if end.state == "cancelled" and job not in history.cancelled:
            yield Violation("not asked for", job, f"{job} is cancelled, and nobody asked for it")


def _changes(history: History) -> Iterator[Violation]:
    """Who was told that a job has ended so was told the truth."""
    for job, state in dict.fromkeys(history.told):
        end = history.ends.get(job)
        if end is not None and end.state != state:
            text = f"{job} was told to be {state}, and is {end.state or 'unknown'} at the end"
            yield Violation("told otherwise", job, text)


def _overlaps(lives: tuple[Life, ...]) -> Iterator[Violation]:
    """Attempts of a task live one after the other, and each number is given once."""
    by_task: dict[str, list[Life]] = defaultdict(list)
    for life in lives:
        by_task[life.task].append(life)
    for task, found in by_task.items():
        found.sort(key=lambda life: life.begin)
        numbers: dict[int, Life] = {}
        for life in found:
            if life.attempt in numbers:
                places = f"{numbers[life.attempt].node} and on {life.node}"
                yield Violation("begun twice", task, f"attempt {life.attempt} of {task} began on {places}")
            numbers[life.attempt] = life
        latest = found[0]  # of all before, the one that lived longest
        for early, late in pairwise(found):
            latest = max(latest, early, key=lambda life: life.last)
            if late.begin <= latest.last:
                by = (latest.last - late.begin) / 1e6
                text = f"{task}: attempt {late.attempt} on {late.node} began {by:.0f} ms before the last sign"
                yield Violation("overlap", task, f"{text} of attempt {latest.attempt} on {latest.node}")


def _again(history: History) -> Iterator[Violation]:
    """What must not run twice after a loss begins again only after an attempt that said that it failed."""
    once = _once(history)
    by_task: dict[str, list[Life]] = defaultdict(list)
    for life in history.lives:
        if life.task.partition(".")[0] in once:
            by_task[life.task].append(life)
    for task, found in by_task.items():
        found.sort(key=lambda life: life.begin)
        for early, late in pairwise(found):
            if early.code in (None, 0):
                end = "was cut short" if early.code is None else "had ended well"
                text = (
                    f"{task} (on_loss: fail) began again on {late.node}, though attempt {early.attempt} {end}"
                )
                yield Violation("run again", task, text, late.begin)


def _once(history: History) -> frozenset[str]:
    """The jobs that must not run twice after a loss."""
    return frozenset(answer.job for answer in history.answers if answer.client_id in history.once)


def _overcommitted(history: History) -> Iterator[Violation]:
    """The asks of those alive at any moment fit on their node."""
    steps: dict[str, list[tuple[int, int, Life]]] = defaultdict(list)
    for life in history.lives:
        steps[life.node] += [(life.begin, 1, life), (life.last + 1, -1, life)]
    for node, changes in steps.items():
        if node not in history.room:
            yield Violation("unknown node", node, f"tasks ran on {node}, which the league does not have")
            continue
        yield from _too_much(node, history.room[node], changes)


def _too_much(node: str, room: dict[str, int], changes: list[tuple[int, int, Life]]) -> Iterator[Violation]:
    held: dict[str, int] = defaultdict(int)
    changes.sort(key=lambda change: change[:2])
    for at, sign, life in changes:
        for name, amount in life.asks.items():
            held[name] += sign * amount
            if sign > 0 and held[name] > room.get(name, 0):
                text = f"{node} holds {held[name]} of {name} at {at / 1e9:.3f} with {life.task}"
                yield Violation("over-committed", node, f"{text}, and has {room.get(name, 0)}", at)
                return  # the first moment tells the story


def _words(history: History) -> Iterator[Violation]:
    """What the league says of a task is what the task has written."""
    once = _once(history)
    by_attempt: dict[tuple[str, int], list[Life]] = defaultdict(list)
    for life in history.lives:
        by_attempt[(life.task, life.attempt)].append(life)
    for job, end in history.ends.items():
        for task in end.tasks:
            name = f"{job}.{task.index}"
            wrote = [life.code for life in by_attempt[(name, task.attempt)]]
            if job in once and _is_loss(task):
                continue
            if (wrong := _wrong_word(task, wrote)) is not None:
                yield Violation("false word", name, f"{name} {wrong}")


def _wrong_word(task: TaskEnd, wrote: list[int | None]) -> str | None:
    if task.state == "succeeded" and 0 not in wrote:
        return f"counts as done by attempt {task.attempt}, which never said so"
    if task.state == "failed" and not any(_is_told(task.code, code) for code in wrote):
        said = "nothing" if not wrote else f"its end with {wrote}"
        return (
            f"counts as failed with {task.code} by attempt {task.attempt} ({task.note}), which wrote {said}"
        )
    return None


def _is_told(told: int | None, wrote: int | None) -> bool:
    """Whether the code that the league tells of a failed attempt is the one that it wrote. A broker that
    adopted the job knows that a task had failed before, and in which attempt, but not its code: None."""
    return wrote not in (None, 0) and told in (None, wrote)
