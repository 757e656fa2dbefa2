"""Bugs in what places and settles tasks: brokers, their views, and the wardens' ledgers."""

from collections.abc import Sequence

import msgspec
import pytest

from hanse.core.broker import attempt_withdrawal, job_lifecycle
from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import CLAIMED, PLACED, RUNNING, WAITING, JobRecord
from hanse.core.messaging.link import LinkSet
from hanse.core.warden import ledger as ledger_module
from hanse.core.warden.ledger import Ledger
from hanse.core.warden.ledger_records import AttemptRecord
from hanse.model.ids import TaskId, index_of, job_of
from hanse.model.messages import AttemptEnd, Claim, Delta, Envelope, Message, Outcome
from hanse.model.resources import Vector
from hanse.policy.node_columns import NodeColumns
from hanse.sim.league import LeagueFactories
from tests.sim.planted_bugs.history import with_unchecked_history

DENIALS_MAX = 5


def double_release(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A run's room comes back twice, as far as the node has that much. The ledger's own checks are off."""
    right = Ledger.return_capacity

    def give_back(self: Ledger, runs: Sequence[AttemptRecord]) -> list[int]:
        nodes = right(self, runs)
        for run in runs:
            size = run.size.vector(self.dimensions)
            assert size is not None
            sums = map(sum, zip(self.room.free_of(run.node), size, strict=True))
            self.room.set_free(run.node, tuple(map(min, self.capacity[run.node], sums)))
        return nodes

    def unchecked(capacity: list[Vector]) -> NodeColumns:
        return NodeColumns(capacity, checked=False)

    patch.setattr(Ledger, "return_capacity", give_back)
    patch.setattr(Ledger, "check", lambda _: None)
    patch.setattr(ledger_module, "NodeColumns", unchecked)
    return factories


def no_deduplication(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A claim that the network doubled, or the broker repeated, is taken again."""
    right = LinkSet.receive

    def receive(self: LinkSet, now: int, envelope: Envelope) -> list[Message]:
        link = self.link(envelope.source)
        old = 0 < envelope.seq <= link.received and envelope.session == link.session
        bodies = right(self, now, envelope)
        return [envelope.body] if old and isinstance(envelope.body, Claim) else bodies

    patch.setattr(LinkSet, "receive", receive)
    return factories


def stale_attempt(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """The end of any attempt counts as the end of the present one."""
    right = JobLifecycle.on_attempt_ended

    def finished(self: JobLifecycle, record: JobRecord, index: int, end: AttemptEnd) -> bool:
        return right(self, record, index, msgspec.structs.replace(end, attempt=record.attempt[index]))

    patch.setattr(JobLifecycle, "on_attempt_ended", finished)
    return factories


def gives_up(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """After five denials a broker neither claims for a task nor registers demand for it again."""
    right = JobLifecycle.on_attempt_refused
    denials: dict[tuple[str, TaskId], int] = {}

    def refused(self: JobLifecycle, task: TaskId, attempt: int, reason: str) -> None:
        record = self.context.jobs.get(job_of(task))
        key = (self.context.config.name, task)
        denials[key] = denials.get(key, 0) + 1
        index = index_of(task)
        if record is not None and denials[key] > DENIALS_MAX and record.state[index] in (CLAIMED, PLACED):
            record.state[index] = WAITING  # but in no line
            record.place[index] = -1
            return
        right(self, task, attempt, reason)

    patch.setattr(JobLifecycle, "on_attempt_refused", refused)
    return with_unchecked_history(factories)


def news_overwrites_pending(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """News of a node makes the broker forget its own claims on the way there.

    The warden checks every claim, so the bug cannot over-commit a node: it makes the broker claim the same
    room twice, be refused, and believe in more room than there is once the answers come. What breaks is that
    the view is no longer a function of what is recorded: a broker that comes back from its journal computes
    what is usable anew, and goes on otherwise than it did. So replay is where the league sees it.
    """
    right = ClusterView.apply_delta

    def delta(self: ClusterView, news: Delta) -> bool:
        taken = right(self, news)
        if taken and self.state.snapshot is not None and news.version == self.state.version:
            for node, free in zip(news.nodes, news.free, strict=True):
                self.usable.set_free(node, free)
        return taken

    patch.setattr(ClusterView, "apply_delta", delta)
    return factories


def late_refusal(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A refusal counts whatever has become of the task since."""
    right = JobLifecycle.on_attempt_refused

    def refused(self: JobLifecycle, task: TaskId, attempt: int, reason: str) -> None:
        record = self.context.jobs.get(job_of(task))
        index = index_of(task)
        if record is not None and CLAIMED <= record.state[index] <= RUNNING:
            record.state[index] = PLACED
            attempt = record.attempt[index]
        right(self, task, attempt, reason)

    patch.setattr(JobLifecycle, "on_attempt_refused", refused)
    return with_unchecked_history(factories)


def lost_start_again(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """A broker does not look whether a lost task may start again."""
    patch.setattr(job_lifecycle, "must_not_repeat", lambda _: False)
    return factories


def taken_back_start_again(patch: pytest.MonkeyPatch, factories: LeagueFactories) -> LeagueFactories:
    """What is taken back, because its start was not told in time, counts as not begun."""
    right = JobLifecycle.on_attempt_ended

    def finished(self: JobLifecycle, record: JobRecord, index: int, end: AttemptEnd) -> bool:
        if end.outcome is Outcome.CANCELLED and index in record.withdrawn:
            end = msgspec.structs.replace(end, outcome=Outcome.UNSTARTED)
        return right(self, record, index, end)

    patch.setattr(JobLifecycle, "on_attempt_ended", finished)
    patch.setattr(attempt_withdrawal, "must_not_repeat", lambda _: False)
    return factories
