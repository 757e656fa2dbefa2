"""Sessions of a warden's runners, and the leases under which their nodes may run attempts.

The warden is the grantor. It renews a lease on request, remembers when, and counts a runner as lost only when
that lease has expired on the slowest possible clock, plus a grace: by then the runner's watchdog has ended
every attempt. After a restart it assumes that it renewed just before, so it waits a whole lease.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hanse.core.config import DRIFT_PERCENT, WardenConfig
from hanse.core.messaging.link import NEVER, LinkSet
from hanse.core.messaging.message_splitting import split_by_bytes
from hanse.model.effects import Effect
from hanse.model.ids import INDEX_BITS, JobId, TaskId
from hanse.model.messages import (
    GroupLayout,
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
LAYOUT_ENTRY_BYTES: Final = 64
"""Bytes of one entry of a layout, with a host name of usual length."""


class RunnerRecord(msgspec.Struct, gc=False, rename={"is_lost": "lost", "is_unsure": "unsure"}):
    """Runner as its warden knows it."""

    nodes: list[int]
    session: int = 0
    leased_at: int = 0
    echo: int = 0
    """Time at which its latest heartbeat was sent, on its own clock."""
    is_lost: bool = True
    is_unsure: bool = False
    """True after it reported no lease: its nodes stay closed until its next heartbeat was answered."""
    strays: dict[int, int] = {}
    """Attempts that it runs and the warden does not know: its nodes stay closed until they end."""
    forget: list[tuple[TaskId, int]] = []
    """Ends recorded here that it has not been told to forget."""


class PendingOrders:
    """Orders for one runner at the end of a step."""

    __slots__ = ("layouts", "starts", "stops")

    def __init__(self) -> None:
        self.starts: list[StartTask] = []
        self.stops: list[StopTask] = []
        self.layouts: dict[tuple[JobId, int], GroupLayout] = {}
        """Layouts of the groups of ``starts``, by job and first task."""


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
        """Time at which runners must be told what to forget, if no order has carried it."""
        self.pending_orders: dict[str, PendingOrders] = {}
        """Orders of this step by runner."""
        self._mark = mark

    def boot(self, now: int) -> None:
        """Start with full leases: no runner counts as lost before a whole lease."""
        for record in self.runners.values():
            record.leased_at = now
        self._schedule()

    def open_session(self, links: LinkSet, now: int, runner: str, message: OpenSession) -> None:
        """Begin a session."""
        record = self.runners[runner]
        record.session, record.is_lost, record.leased_at, record.echo = (
            message.session,
            False,
            now,
            message.sent_at,
        )
        record.strays.clear()
        record.forget.clear()  # it has reported all its ends again
        links.reopen(runner, message.session)
        self._schedule()

    def on_runner_heartbeat(
        self,
        links: LinkSet,
        effects: list[Effect],
        now: int,
        runner: str,
        beat: RunnerHeartbeat,
        lapsed: tuple[str, ...],
    ) -> None:
        """Renew a runner's lease, or ask a lost one to open a new session."""
        record = self.runners.get(runner)
        if record is None or beat.session != record.session:
            return
        if record.is_lost:
            self._mark("warden.asked_runner_to_rejoin")
            links.send_soft(effects, runner, Rejoin(beat.session))
            return
        oldest = record.leased_at + self.span <= self.due
        record.leased_at = now
        if record.is_unsure:
            record.is_unsure = False
        if beat.sent_at > record.echo:  # noqa: PLR1730  hot: max() is slower
            record.echo = beat.sent_at
        if oldest:
            self._schedule()
        links.send_soft(effects, runner, RunnerLease(beat.session, beat.sent_at, lapsed))

    def orders_for(self, runner: str) -> PendingOrders:
        """Return the orders of this step for a runner."""
        found = self.pending_orders.get(runner)
        if found is None:
            found = self.pending_orders[runner] = PendingOrders()
        return found

    def send_orders(self, links: LinkSet, effects: list[Effect], now: int) -> None:
        """Send every runner its orders of this step, as a rule in one message."""
        for runner, orders in self.pending_orders.items():
            record = self.runners[runner]
            forget, record.forget = tuple(record.forget), []
            weight = _weight_with_layouts(orders.layouts) if orders.layouts else _weight
            *before, last = split_by_bytes(orders.starts, weight, STARTS_MAX) if orders.starts else [()]
            layouts = tuple(orders.layouts.values())
            for starts in before:
                part = _layouts_of(layouts, starts)
                links.send(effects, now, runner, RunnerOrders(record.echo, tuple(starts), layouts=part))
            part = _layouts_of(layouts, last) if before else layouts
            links.send(
                effects, now, runner,
                RunnerOrders(record.echo, tuple(last), tuple(orders.stops), forget, part),
            )  # fmt: skip
        self.pending_orders.clear()
        if self.forget_at < NEVER and not any(record.forget for record in self.runners.values()):
            self.forget_at = NEVER

    def forget_later(self, now: int, record: RunnerRecord, ends: Iterable[tuple[TaskId, int]]) -> None:
        """Let a runner forget these ends: tell it with its next orders, or after a while."""
        record.forget += ends
        if now + self.linger < self.forget_at:  # noqa: PLR1730  hot: min() is slower
            self.forget_at = now + self.linger

    def forget_now(self) -> None:
        """Create orders for every runner that may forget ends, because no order has carried them."""
        self.forget_at = NEVER
        for runner, record in self.runners.items():
            if record.forget:
                self.orders_for(runner)

    def remove_stray(self, runner: str, task: TaskId, attempt: int) -> bool:
        """Remove an ended attempt from the strays; True if it was one."""
        record = self.runners.get(runner)
        if record is None or record.strays.get(task) != attempt:
            return False
        del record.strays[task]
        return True

    def find_overdue(self, now: int) -> list[RunnerRecord]:
        """Mark and return the runners with a lease that has certainly expired."""
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
        """Restore dumped records. The settings decide which nodes a runner has."""
        for name, record in self.runners.items():
            saved = runners.get(name)
            if saved is not None:
                saved.nodes = record.nodes
                self.runners[name] = saved
        self.forget_at = forget_at
        self._schedule()


def _weight(start: StartTask) -> int:
    return len(start.payload)


def _weight_with_layouts(layouts: Mapping[tuple[JobId, int], GroupLayout]) -> Callable[[StartTask], int]:
    """Return the weight of a start; the first one of a job carries those of the job's layouts."""
    left: dict[int, int] = {}
    for (job, _), layout in layouts.items():
        entries = len(layout.runs) + len(layout.ranks)
        left[job] = left.get(job, 0) + (entries + 1) * LAYOUT_ENTRY_BYTES
    return lambda start: len(start.payload) + left.pop(start.task >> INDEX_BITS, 0)


def _layouts_of(layouts: tuple[GroupLayout, ...], starts: Sequence[StartTask]) -> tuple[GroupLayout, ...]:
    """Return the layouts of the groups of these starts."""
    jobs = dict.fromkeys([start.task >> INDEX_BITS for start in starts])
    return tuple([layout for layout in layouts if layout.job in jobs])


def lease_span(lease: int, grace: int) -> int:
    """Return how long a grantor waits on its own clock until a lease has certainly expired on the holder's
    clock."""
    return lease + lease * 2 * DRIFT_PERCENT // 100 + grace
