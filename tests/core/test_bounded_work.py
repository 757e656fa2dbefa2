"""No event does more work the larger a job is: what one event queues, ends, tells or makes known is a slice.

Work is counted, not timed: tasks that an event queues, ends or makes known, tasks that a message tells of,
and the lines of the machine's code that run while it handles an event. The last must be the same for a job of
four times the size, beyond a little for each of its portions.
"""

import sys
from types import FrameType
from typing import Any

import msgspec
import pytest

from hanse.core.broker.broker import Broker
from hanse.core.broker.failover.end_columns import STRETCH_TASKS, cut_ends, ends_in, is_column
from hanse.core.broker.failover.replica_updates import INLINE_MAX
from hanse.core.broker.job_table import BLOCKED, FAILED, SUCCEEDED, WAITING, JobRecord
from hanse.core.broker.sliced_jobs import QUEUED_PER_ENDED, SLICE_PAUSE
from hanse.core.messaging.link import NEVER
from hanse.core.messaging.message_splitting import ENTRIES_MAX
from hanse.live.journal.layout import RECORD_BYTES_MAX
from hanse.model.effects import Effect, SendMessage, TaskSettled, TasksSettled
from hanse.model.events import Event
from hanse.model.ids import SECOND, JobId, task_id
from hanse.model.messages import Outcome, ReplicaUpdate
from tests.core.wired import Wired, job, node, tasks

SLICE = 256
SMALL, LARGE = 8 * STRETCH_TASKS, 32 * STRETCH_TASKS
PORTION_LINES = 400
"""Lines that a stretch of a job may cost where it is copied or revived: none for each task."""


def settled_by(command: Effect) -> int:
    """Of how many tasks a command makes the end known."""
    return command.count if isinstance(command, TasksSettled) else isinstance(command, TaskSettled)


class Counted(Wired):
    """Counts what each event of a broker does."""

    slice_tasks = SLICE

    def __init__(self, *args: object, **rest: object) -> None:
        self.lines = self.settled_most = self.told_most = self.bytes_most = self.queued_most = 0
        self.counting = False
        super().__init__(*args, **rest)  # type: ignore[arg-type]

    def give(self, name: str, event: Event) -> list[Effect]:
        if not self.counting or not isinstance(self.machines[name], Broker):
            return super().give(name, event)
        before = self._queued(name)
        lines, sys_trace = 0, sys.gettrace()

        def trace(frame: FrameType, what: str, _: Any) -> Any:
            nonlocal lines
            lines += what == "line"
            return trace if "hanse/core" in frame.f_code.co_filename else None

        sys.settrace(trace)
        try:
            commands = self.machines[name].handle(event)
        finally:
            sys.settrace(sys_trace)
        self.lines = max(self.lines, lines)
        self.queued_most = max(self.queued_most, self._queued(name) - before)
        self.settled_most = max(self.settled_most, sum(map(settled_by, commands)))
        for command in commands:
            if isinstance(command, SendMessage) and isinstance(command.envelope.body, ReplicaUpdate):
                body = command.envelope.body
                told = len(body.ends) + len(body.end_runs) + sum(len(states) for _, states, _ in body.columns)
                self.told_most = max(self.told_most, told)
            if isinstance(command, SendMessage):
                self.bytes_most = max(self.bytes_most, len(msgspec.msgpack.encode(command.envelope)))
            self._perform_each(name, command)
        return commands

    def _queued(self, name: str) -> int:
        jobs: dict[JobId, JobRecord] = self.machines[name]._context.jobs  # type: ignore[attr-defined]
        return sum(len(part) for record in jobs.values() for part in record.waiting)

    def check_bounds(self) -> None:
        assert self.queued_most <= QUEUED_PER_ENDED * SLICE
        assert self.settled_most <= ENTRIES_MAX
        assert self.told_most <= ENTRIES_MAX
        assert self.bytes_most <= RECORD_BYTES_MAX // 16


def made(count: int) -> tuple[Counted, JobId]:
    """A league with a job of so many tasks, all of which are queued."""
    one = Counted({"c1": (node(4_000),)}, ("b1", "b2", "b3"))
    one.counting = True
    number = one.submit(job(tasks(count)))
    one.run(5 * SECOND)
    return one, number


def record_of(one: Counted, number: JobId, broker: str = "b1") -> JobRecord:
    return one.machines[broker]._context.jobs[number]  # type: ignore[attr-defined,no-any-return]


def end_by_turns(one: Counted, number: JobId) -> None:
    """As if every second task had ended, no two of those alike."""
    record, context = record_of(one, number), one.machines["b1"]._context  # type: ignore[attr-defined]
    waiting = record.waiting[0]
    ended = [index for index in waiting if index % 2 == 0]
    for index in ended:
        record.state[index] = SUCCEEDED if index % 4 else FAILED
        record.ran[index], record.attempt[index] = 1, 1 + index % 3
    record.waiting[0] = [index for index in waiting if index % 2]
    record.tasks_left -= len(ended)
    record.unfinished[0] -= len(ended)
    context.queue.add(context.queue.lines[record.lines[0]], -len(ended))


def admit(count: int) -> int:
    one, number = made(count)
    assert record_of(one, number).state.count(WAITING) == count - 4
    assert record_of(one, number).waiting[0][-1] == 4, "the lowest goes first"
    one.check_bounds()
    one.check()
    return one.lines


def cancel(count: int) -> int:
    one, number = made(count)
    one.lines = 0
    one.cancel(number)
    one.run(3 * SECOND)
    assert number not in one.over, "it takes many slices"
    one.check_bounds()
    one.check()
    return one.lines


def replicate(count: int) -> int:
    one, number = made(count)
    end_by_turns(one, number)
    one.lines = 0
    one.deaf["b2"] = True
    one.run(10 * SECOND)
    shard_copy = one.machines["b3"]._standby.shards["b1#1"]  # type: ignore[attr-defined]
    record = record_of(one, number)
    assert shard_copy.task_ends[number].count == count - record.tasks_left > INLINE_MAX
    one.check_bounds()
    return one.lines


def adopt(count: int) -> int:
    one, number = made(count)
    end_by_turns(one, number)
    one.deaf["b2"] = True
    one.run(10 * SECOND)
    before = record_of(one, number)
    one.lines = 0
    one.deaf["b1"] = True
    one.run(60 * SECOND)
    record = record_of(one, number, "b3")
    live = [state if state >= SUCCEEDED else BLOCKED for state in record.state]
    assert live == [state if state >= SUCCEEDED else BLOCKED for state in before.state]
    assert BLOCKED not in record.state, "all of it is queued by and by"
    assert len(one.settled) == count - before.tasks_left, "what had ended is made known, slice by slice"
    one.check_bounds()
    one.machines["b3"].check()
    return one.lines


def spoil(count: int) -> int:
    one = Counted({"c1": (node(4_000),)}, ("b1", "b2", "b3"))
    one.counting = True
    number = one.submit(job(tasks(1, name="a"), tasks(count, name="b", needs=("a",)), tasks(1, name="c")))
    one.lines = 0
    one.end(number, 0, outcome=Outcome.FAILED, code=1)
    one.run(3 * SECOND)
    assert number not in one.over, "it takes many slices"
    assert list(one.running(number)) == [count + 1], "what does not need the failed group goes on"
    one.check_bounds()
    one.check()
    return one.lines


def take(count: int) -> int:
    """A broker hears that its estate is another's, with very many ends of a job that the other never got, as
    of one that it had adopted itself."""
    one, number = made(1)
    other = JobId(number + 1)
    owned = one.machines["b1"]._replication.state.owned["b1#1"]  # type: ignore[attr-defined]
    one.deaf["b1"] = True
    base, half = task_id(other, 0), count // 2
    owned.republishing.append((NEVER - 1, base, 1, SUCCEEDED, half))
    states, attempts = b"\5\6" * (STRETCH_TASKS // 2), b"\1" * STRETCH_TASKS
    for at in range(half, count, STRETCH_TASKS):
        owned.republishing_columns.append((NEVER - 1, base + at, states, attempts))
    one.run(30 * SECOND)
    assert one.marks("b2")["broker.adopted_estate"] == 1
    assert not one.settled
    one.lines = 0
    one.boot("b1")
    one.run(30 * SECOND)
    assert one.marks("b1")["broker.estate_taken"] == 1
    assert len(one.settled) == count, "all of it is made known, slice by slice"
    one.check_bounds()
    one.check()
    return one.lines


@pytest.mark.parametrize("phase", [admit, cancel, spoil])
def test_an_event_does_as_much_for_a_job_of_four_times_the_size(phase: Any) -> None:
    small, large = phase(SMALL), phase(LARGE)
    assert large <= small + PORTION_LINES, (small, large)


@pytest.mark.parametrize("phase", [replicate, adopt, take])
def test_an_event_grows_with_the_portions_of_a_job_and_not_with_its_tasks(phase: Any) -> None:
    small, large = phase(SMALL), phase(LARGE)
    extra = (LARGE - SMALL) // STRETCH_TASKS
    assert large - small <= extra * PORTION_LINES, (small, large)


def test_a_broker_that_restarts_queues_the_rest_of_a_large_job() -> None:
    one = Counted({"c1": (node(4_000),)}, ("b1", "b2"))
    request = one.hand_in(job(tasks(5 * QUEUED_PER_ENDED * SLICE)))
    one.deliver()
    one.restart("b1")
    one.machines["b1"].check()
    one.run(5 * SECOND)
    number = one.replies[request].job  # type: ignore[union-attr]
    assert BLOCKED not in record_of(one, number).state
    one.cancel(number)
    one.run(60 * SECOND)
    assert one.over[number] is Outcome.CANCELLED
    one.check()


def test_a_job_that_is_cancelled_while_it_is_queued_is_queued_no_further() -> None:
    one = Counted({"c1": (node(4_000),)}, ("b1", "b2"))
    request = one.hand_in(job(tasks(3 * QUEUED_PER_ENDED * SLICE)))
    one.deliver()
    number = one.replies[request].job  # type: ignore[union-attr]
    assert BLOCKED in record_of(one, number).state
    one.cancel(number)
    one.check()
    one.run(60 * SECOND)
    assert one.over[number] is Outcome.CANCELLED
    one.check_idle()


def test_a_spoiled_group_is_ended_by_whoever_has_the_job() -> None:
    one = Counted({"c1": (node(4_000),)}, ("b1", "b2", "b3"))
    number = one.submit(
        job(
            tasks(1, name="a"),
            tasks(99 * SLICE, name="b", needs=("a",)),
            tasks(2, name="c", needs=("b",)),
            tasks(1, name="d"),
        )
    )
    one.end(number, 0, outcome=Outcome.FAILED, code=1)
    assert BLOCKED in record_of(one, number).state
    one.restart("b1")
    one.machines["b1"].check()
    one.run(3 * SLICE_PAUSE)
    assert 0 < record_of(one, number).state.count(BLOCKED) < 60 * SLICE
    one.deaf["b1"] = True
    one.run(60 * SECOND)
    assert one.marks("b2")["broker.adopted_estate"] == 1
    assert list(one.running(number)) == [99 * SLICE + 3]
    one.end(number, 99 * SLICE + 3)
    one.run(60 * SECOND)
    assert one.over[number] is Outcome.FAILED
    assert one.outcome(number, 99 * SLICE + 3) is Outcome.SUCCEEDED
    assert one.outcome(number, 99 * SLICE + 2) is Outcome.CANCELLED
    one.machines["b2"].check()


def test_a_job_is_cancelled_while_a_group_of_it_is_ended() -> None:
    one = Counted({"c1": (node(4_000),)}, ("b1", "b2"))
    number = one.submit(
        job(tasks(1, name="a"), tasks(51 * SLICE, name="b", needs=("a",)), tasks(9, name="d"))
    )
    one.end(number, 0, outcome=Outcome.FAILED, code=1)
    assert BLOCKED in record_of(one, number).state
    one.cancel(number)
    one.check()
    one.run(60 * SECOND)
    assert one.over[number] is Outcome.CANCELLED
    one.check()


def test_columns_tell_what_runs_tell() -> None:
    states = bytearray([WAITING, SUCCEEDED, FAILED, BLOCKED, SUCCEEDED]) * 4_000
    attempts = [index % 7 * 70_000 for index in range(len(states))]
    ran = bytearray([1, 1, 0, 1, 1]) * 4_000
    runs, columns = cut_ends(states, attempts, ran)
    assert not runs
    assert all(map(is_column, columns))
    told = [end for column in columns for end in ends_in(column)]
    assert told == [
        (index, state, attempts[index] if ran[index] else 0)
        for index, state in enumerate(states)
        if state >= SUCCEEDED
    ]
    first, some, tries = columns[0]
    for odd in ((first, b"", b""), (first, some, tries[:-1]), (first, b"\3" * len(some), tries)):
        assert not is_column(odd)
