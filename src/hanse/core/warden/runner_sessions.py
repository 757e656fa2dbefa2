"""A warden's runners: their sessions and the leases under which their nodes may run anything.

The warden is the grantor here. It renews a lease when asked, remembers when it last did, and counts a
runner as lost only when that lease is over on the slowest possible clock, plus a grace: by then the
runner's watchdog has ended every attempt. After a restart it assumes that it renewed just before, so it
waits a whole lease.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from hanse.core.config import DRIFT_PERCENT, WardenConfig
from hanse.core.messaging.link import NEVER, LinkSet
from hanse.core.messaging.message_splitting import split_by_bytes
from hanse.model.effects import Effect
from hanse.model.ids import TaskId
from hanse.model.messages import (
    OpenSession,
    Rejoin,
    RunnerHeartbeat,
    RunnerLease,
    RunnerOrders,
    StartTask,
    StopTask,
)

STARTS_MAX: Final = 10_000
"""Starts in one message to a runner."""


class RunnerRecord(msgspec.Struct, gc=False, rename={"is_lost": "lost", "is_unsure": "unsure"}):
    """What the warden knows of one runner."""

    nodes: list[int]
    session: int = 0
    leased_at: int = 0
    echo: int = 0
    """When its latest beat was sent, on its own clock."""
    is_lost: bool = True
    is_unsure: bool = False
    """It said that it had no lease: its nodes stay closed until its next beat has been answered."""
    strays: dict[int, int] = {}
    """Attempts that it runs and that the warden does not know: its nodes stay closed until they are gone."""
    forget: list[tuple[TaskId, int]] = []
    """Ends on record here that it has not been told to forget."""


class PendingOrders:
    """What one runner is to be told at the end of a step."""

    __slots__ = ("starts", "stops")

    def __init__(self) -> None:
        self.starts: list[StartTask] = []
        self.stops: list[StopTask] = []


class RunnerSessions:
    """All runners of one cluster."""

    def __init__(self, config: WardenConfig, mark: Callable[[str], None]) -> None:
        timings = config.timings
        self.span = lease_span(timings.runner_lease, timings.lease_grace)
        self.runners: dict[str, RunnerRecord] = {}
        self.runner_of_node = [node.runner for node in config.nodes]
        for index, node in enumerate(config.nodes):
            self.runners.setdefault(node.runner, RunnerRecord([], strays={}, forget=[])).nodes.append(index)
        self.due = NEVER
        self.linger = timings.settle_linger
        self.forget_at = NEVER
        """When the runners must be told what to forget, if no order has carried it."""
        self.pending_orders: dict[str, PendingOrders] = {}
        """What this step has in store for the runners."""
        self._mark = mark

    def boot(self, now: int) -> None:
        """A whole lease before anybody counts as lost."""
        for record in self.runners.values():
            record.leased_at = now
        self._schedule()

    def open_session(self, links: LinkSet, now: int, runner: str, hello: OpenSession) -> None:
        """Begin a session."""
        record = self.runners[runner]
        record.session, record.is_lost, record.leased_at, record.echo = (
            hello.session,
            False,
            now,
            hello.sent_at,
        )
        record.strays.clear()
        record.forget.clear()  # it has told of all its ends again
        links.reopen(runner, hello.session)
        self._schedule()

    def on_runner_heartbeat(
        self,
        links: LinkSet,
        out: list[Effect],
        now: int,
        runner: str,
        beat: RunnerHeartbeat,
        lapsed: tuple[str, ...],
    ) -> None:
        """Renew a runner's lease, or have it introduce itself again."""
        record = self.runners.get(runner)
        if record is None or beat.session != record.session:
            return
        if record.is_lost:
            self._mark("warden.asked_runner_to_rejoin")
            links.send_soft(out, runner, Rejoin(beat.session))
            return
        oldest = record.leased_at + self.span <= self.due
        record.leased_at = now
        if record.is_unsure:
            record.is_unsure = False
        if beat.sent_at > record.echo:  # noqa: PLR1730  hot: max() costs more
            record.echo = beat.sent_at
        if oldest:
            self._schedule()
        links.send_soft(out, runner, RunnerLease(beat.session, beat.sent_at, lapsed))

    def orders_for(self, runner: str) -> PendingOrders:
        """What a runner will be told."""
        found = self.pending_orders.get(runner)
        if found is None:
            found = self.pending_orders[runner] = PendingOrders()
        return found

    def send_orders(self, links: LinkSet, out: list[Effect], now: int) -> None:
        """Tell every runner what this step has in store for it, in one message each."""
        for runner, batch in self.pending_orders.items():
            record = self.runners[runner]
            forget, record.forget = tuple(record.forget), []
            *before, last = split_by_bytes(batch.starts, _weight, STARTS_MAX) if batch.starts else [()]
            for starts in before:
                links.send(out, now, runner, RunnerOrders(record.echo, tuple(starts)))
            links.send(out, now, runner, RunnerOrders(record.echo, tuple(last), tuple(batch.stops), forget))
        self.pending_orders.clear()
        if self.forget_at < NEVER and not any(record.forget for record in self.runners.values()):
            self.forget_at = NEVER

    def forget_later(self, now: int, record: RunnerRecord, ends: Iterable[tuple[TaskId, int]]) -> None:
        """A runner may forget these ends: tell it with its next orders, or after a while."""
        record.forget += ends
        if now + self.linger < self.forget_at:  # noqa: PLR1730  hot: min() costs more
            self.forget_at = now + self.linger

    def forget_now(self) -> None:
        """No order has carried it: every runner is told what it may forget."""
        self.forget_at = NEVER
        for runner, record in self.runners.items():
            if record.forget:
                self.orders_for(runner)

    def remove_stray(self, runner: str, task: TaskId, attempt: int) -> bool:
        """An attempt has ended: whether it was a stray."""
        record = self.runners.get(runner)
        if record is None or record.strays.get(task) != attempt:
            return False
        del record.strays[task]
        return True

    def find_overdue(self, now: int) -> list[RunnerRecord]:
        """Runners whose lease is surely over."""
        late = [r for r in self.runners.values() if not r.is_lost and now >= r.leased_at + self.span]
        for record in late:
            record.is_lost = True
        self._schedule()
        return late

    def _schedule(self) -> None:
        first = NEVER
        for record in self.runners.values():
            if record.leased_at < first and not record.is_lost:
                first = record.leased_at
        self.due = first + self.span if first < NEVER else NEVER

    def restore(self, runners: dict[str, RunnerRecord], forget_at: int) -> None:
        """Take dumped records. Which nodes a runner has is for the settings to say."""
        for name, record in self.runners.items():
            saved = runners.get(name)
            if saved is not None:
                saved.nodes = record.nodes
                self.runners[name] = saved
        self.forget_at = forget_at
        self._schedule()


def _weight(start: StartTask) -> int:
    return len(start.payload)


def lease_span(lease: int, grace: int) -> int:
    """How long a grantor waits on its own clock until a lease is surely over on the holder's."""
    return lease + lease * 2 * DRIFT_PERCENT // 100 + grace
