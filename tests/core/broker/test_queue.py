"""A broker's queue is in key order, however it got there."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hanse.core.broker.job_table import JobRecord, new_record
from hanse.core.broker.queue import STALE_MAX, BrokerQueue
from hanse.model.ids import JobId, job_id
from hanse.model.messages import QueueKey, Shape
from hanse.model.resources import Resources
from tests.core.wired import job, tasks

SHAPE = Shape(Resources(cpu=1_000))
keys = st.tuples(st.integers(0, 5), st.integers(0, 3))


class LineHistory(RuleBasedStateMachine):
    """One line; jobs join it, change their keys, are taken from and leave."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = BrokerQueue()
        self.jobs: dict[JobId, JobRecord] = {}
        self.serial = 0

    @initialize()
    def begin(self) -> None:
        self.number = self.lines.join(SHAPE)  # one user more, so that the line stays

    def waiting(self) -> list[tuple[QueueKey, JobId]]:
        return sorted((record.keys[0], record.id) for record in self.jobs.values() if record.waiting[0])

    @rule(key=keys, count=st.integers(1, 4))
    def join(self, key: QueueKey, count: int) -> None:
        self.serial += 1
        record = new_record(job_id(1, self.serial), job(tasks(count)), "b1#1", 0)
        self.jobs[record.id] = record
        record.lines[0] = self.lines.join(SHAPE)
        assert record.lines[0] == self.number
        record.waiting[0] = list(range(count))
        self.lines.add(self.lines.lines[self.number], count)
        self.lines.push(self.jobs, record, 0, key)

    def draw(self, data: st.DataObject) -> JobRecord:
        return self.jobs[data.draw(st.sampled_from(sorted(self.jobs)))]

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), key=keys)
    def rekey(self, data: st.DataObject, key: QueueKey) -> None:
        record = self.draw(data)
        if record.waiting[0]:
            self.lines.push(self.jobs, record, 0, key)

    @precondition(lambda self: self.jobs)
    @rule()
    def take_best(self) -> None:
        head = self.lines.head(self.number, self.jobs)
        if head is not None:
            head[1].waiting[0].pop()
            self.lines.add(self.lines.lines[self.number], -1)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def take_all(self, data: st.DataObject) -> None:
        record = self.draw(data)
        self.lines.add(self.lines.lines[self.number], -len(record.waiting[0]))
        record.waiting[0] = []

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), key=keys)
    def wait_again(self, data: st.DataObject, key: QueueKey) -> None:
        record = self.draw(data)
        fresh = not record.waiting[0]
        record.waiting[0].append(0)
        self.lines.add(self.lines.lines[self.number], 1)
        if fresh:
            self.lines.push(self.jobs, record, 0, key)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        record = self.draw(data)
        self.lines.add(self.lines.lines[self.number], -len(record.waiting[0]))
        del self.jobs[record.id]
        self.lines.leave(self.number)

    @rule()
    def restore(self) -> None:
        fresh = BrokerQueue()
        fresh.restore(dict(self.lines.lines), list(self.lines.free), self.jobs)
        self.lines = fresh

    @invariant()
    def head_is_the_smallest(self) -> None:
        if not hasattr(self, "number"):
            return
        head = self.lines.head(self.number, self.jobs)
        waiting = self.waiting()
        assert (None if head is None else (head[0], head[1].id)) == (waiting[0] if waiting else None)

    @invariant()
    def heads_are_remembered_only_while_they_are_right(self) -> None:
        self.lines.check(self.jobs)
        heads = self.lines.heads(self.jobs)
        assert [(key, record.id) for key, _, record, _ in heads] == self.waiting()[:1]
        assert self.lines.has_waiting() == bool(heads)


LineHistory.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_line_history = LineHistory.TestCase


def test_a_line_without_users_is_forgotten_and_its_number_used_again() -> None:
    lines = BrokerQueue()
    first, second = lines.join(SHAPE), lines.join(Shape(Resources(cpu=2)))
    assert (first, second, lines.join(SHAPE)) == (0, 1, 0)
    lines.leave(0)
    assert 0 in lines.lines
    lines.leave(0)
    assert 0 not in lines.lines
    assert lines.join(Shape(Resources(cpu=3))) == 0


def test_out_of_date_entries_do_not_pile_up_behind_a_good_head() -> None:
    lines = BrokerQueue()
    jobs: dict[JobId, JobRecord] = {}
    for serial, key in ((1, (0,)), (2, (10_000,))):
        record = new_record(job_id(1, serial), job(tasks(1)), "b1#1", 0)
        record.lines[0] = lines.join(SHAPE)
        record.waiting[0] = [0]
        lines.add(lines.lines[0], 1)
        jobs[record.id] = record
        lines.push(jobs, record, 0, key)
    first, second = jobs.values()
    for number in range(5_000):
        lines.push(jobs, second, 0, (9_999 - number,))
    assert len(lines._heaps[0]) <= 4 * 2 + STALE_MAX + 1
    head = lines.head(0, jobs)
    assert head is not None
    assert head[1] is first
