"""Bugs planted into the machines, to see whether the seeds of the CI run expose them.

Each is a mistake that somebody made once, here or elsewhere. A planter changes a class for the length of a
test.
"""

from collections.abc import Callable

import msgspec
import pytest

from hanse.core.careers import Careers
from hanse.core.jobs import CLAIMED, FAILED, PLACED, RUNNING
from hanse.core.ledger import Ledger, Run
from hanse.core.link import Post
from hanse.core.runner import Runner
from hanse.core.view import ClusterView
from hanse.model.commands import Command
from hanse.model.events import Event
from hanse.model.ids import TaskId, index_of, job_of
from hanse.model.messages import Body, Claim, Delta, End, Envelope
from hanse.sim.process import Process

Planter = Callable[[pytest.MonkeyPatch], None]


class AckFirst(Process):
    """Performs commands before the journal's write has come back."""

    def _defer(self, commands: list[Command]) -> None:
        self.perform(commands)
        super()._defer([])


def double_release(patch: pytest.MonkeyPatch) -> None:
    """A run's room comes back twice, as far as the node has that much."""
    right = Ledger.finish

    def finish(self: Ledger, run: Run) -> None:
        right(self, run)
        size = run.size.vector(self.dimensions)
        assert size is not None
        whole = self.capacity[run.node]
        free = self.room.free_of(run.node)
        self.room.set_free(run.node, tuple(map(min, whole, map(sum, zip(free, size, strict=True)))))

    patch.setattr(Ledger, "finish", finish)


def no_deduplication(patch: pytest.MonkeyPatch) -> None:
    """A claim that the network doubled, or the broker repeated, is taken again."""
    right = Post.receive

    def receive(self: Post, now: int, envelope: Envelope) -> list[Body]:
        link = self.link(envelope.source)
        old = 0 < envelope.seq <= link.received and envelope.session == link.session
        bodies = right(self, now, envelope)
        return [envelope.body] if old and isinstance(envelope.body, Claim) else bodies

    patch.setattr(Post, "receive", receive)


def lease_from_receipt(patch: pytest.MonkeyPatch) -> None:
    """A runner counts its lease from when the renewal arrived, not from when it asked."""
    handle, renewed = Runner.handle, Runner._renewed
    clock: dict[str, int] = {}

    def stamped(self: Runner, event: Event) -> list[Command]:
        clock[self.name] = event.at
        return handle(self, event)

    def late(self: Runner, echo: int, lapsed: tuple[str, ...]) -> None:
        renewed(self, max(echo, clock[self.name]), lapsed)

    patch.setattr(Runner, "handle", stamped)
    patch.setattr(Runner, "_renewed", late)


def stale_attempt(patch: pytest.MonkeyPatch) -> None:
    """The end of any attempt counts as the end of the present one."""
    right = Careers.finished

    def finished(self: Careers, end: End) -> bool:
        record = self.desk.jobs.get(job_of(end.task))
        if record is not None:
            end = msgspec.structs.replace(end, attempt=record.attempt[index_of(end.task)])
        return right(self, end)

    patch.setattr(Careers, "finished", finished)


def gives_up(patch: pytest.MonkeyPatch) -> None:
    """A broker fails a task after five denials."""
    right = Careers.refused
    denials: dict[tuple[int, TaskId], int] = {}

    def refused(self: Careers, task: TaskId, attempt: int, reason: str) -> None:
        record = self.desk.jobs.get(job_of(task))
        key = (id(self), task)
        denials[key] = denials.get(key, 0) + 1
        index = index_of(task)
        if record is not None and denials[key] > 5 and record.state[index] in (CLAIMED, PLACED):
            self._settle(record, index, FAILED)
            return
        right(self, task, attempt, reason)

    patch.setattr(Careers, "refused", refused)


def news_overwrites_pending(patch: pytest.MonkeyPatch) -> None:
    """News of a node makes the broker forget its own claims on the way there."""
    right = ClusterView.delta

    def delta(self: ClusterView, news: Delta) -> bool:
        taken = right(self, news)
        if taken and self.sight.snapshot is not None and news.version == self.sight.version:
            for node, free in zip(news.nodes, news.free, strict=True):
                self.usable.set_free(node, free)
        return taken

    patch.setattr(ClusterView, "delta", delta)


def late_refusal(patch: pytest.MonkeyPatch) -> None:
    """A refusal counts whatever has become of the task since."""
    right = Careers.refused

    def refused(self: Careers, task: TaskId, attempt: int, reason: str) -> None:
        record = self.desk.jobs.get(job_of(task))
        index = index_of(task)
        if record is not None and CLAIMED <= record.state[index] <= RUNNING:
            record.state[index] = PLACED
            attempt = record.attempt[index]
        right(self, task, attempt, reason)

    patch.setattr(Careers, "refused", refused)


PLANTED: dict[str, Planter] = {
    "double release": double_release,
    "no de-duplication of claims": no_deduplication,
    "lease counted from receipt": lease_from_receipt,
    "stale attempt accepted": stale_attempt,
    "a broker that gives up after five denials": gives_up,
    "news that overwrites pending claims": news_overwrites_pending,
    "late refusal overriding a live grant": late_refusal,
}
