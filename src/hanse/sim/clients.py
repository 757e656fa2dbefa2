"""Clients: they submit jobs, repeat each request until it is acknowledged, and then stop for good.

A client stops because one that went on would hide a broker that forgets what it has acknowledged. It repeats
to the same broker with the same ``client_id``; that broker must make one job of all repetitions.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

import msgspec

from hanse.model.effects import JobAccepted, RequestRejected
from hanse.model.ids import MILLISECOND, JobId
from hanse.sim.checkers.oracle import Oracle
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.workload import JobPlan, SeedWorkload
from hanse.sim.world import VirtualWorld

REPEAT_AFTER: Final = 1_500 * MILLISECOND
CANCELS_MAX: Final = 5
"""Number of times that a request to cancel is repeated without a reply."""
_DELAY_MAX: Final = 10 * MILLISECOND


class Clients:
    """All clients of a league. Request ``2 n`` submits plan ``n``, request ``2 n + 1`` cancels it."""

    def __init__(
        self,
        world: VirtualWorld,
        rng: Random,
        workload: SeedWorkload,
        brokers: Mapping[str, JournalledProcess],
        oracle: Oracle,
    ) -> None:
        self.plans = workload.plans
        self.loss = 0.0
        self.replies: dict[int, str] = {}
        """Reply to each request: empty for an acknowledgement, else the reason for the rejection."""
        self.jobs: dict[int, JobId] = {}
        """Job of each acknowledged plan."""
        self._world = world
        self._rng = rng
        self._workload = workload
        self._brokers = brokers
        self._oracle = oracle
        self._cancel_counts: dict[int, int] = {}
        for name in brokers:
            brokers[name].set_performers(
                {
                    **brokers[name].performers,
                    JobAccepted: self.on_job_accepted,
                    RequestRejected: self.on_request_rejected,
                }
            )
        for plan in workload.plans:
            world.call_at(plan.at, self._submit_first, plan)

    @property
    def unanswered_count(self) -> int:
        """Number of submissions without a reply."""
        return sum(2 * plan.number not in self.replies for plan in self._workload.plans)

    def on_job_accepted(self, effect: JobAccepted) -> None:
        """Record a broker's promise; it counts from here on, even if the client does not hear of it."""
        plan = self._workload.plans[effect.request // 2]
        if not effect.request % 2:
            self._oracle.on_job_accepted(effect.job, plan)
        if not self._is_lost():
            self._world.call_at(self._arrival_time(), self._on_reply, effect)

    def on_request_rejected(self, effect: RequestRejected) -> None:
        """Pass a rejection to the client, unless the reply is lost."""
        if not self._is_lost():
            self._world.call_at(self._arrival_time(), self._on_reply, effect)

    def _submit_first(self, plan: JobPlan) -> None:
        after = tuple(self.jobs[number] for number in plan.after if number in self.jobs)
        self._oracle.specs[plan.number] = msgspec.structs.replace(plan.spec, after=after)
        self._send_request(2 * plan.number)

    def _send_request(self, request: int) -> None:
        if request in self.replies:
            return
        plan = self._workload.plans[request // 2]
        broker = self._brokers[plan.broker]
        client = f"client{plan.number}"
        if request % 2:
            if self._cancel_counts.get(request, 0) >= CANCELS_MAX:
                return
            self._cancel_counts[request] = self._cancel_counts.get(request, 0) + 1
            job = self.jobs[plan.number]
            if not self._is_lost():
                self._oracle.cancelled_jobs[job] = None
                self._world.call_at(self._arrival_time(), broker.cancel, (client, request, job))
        elif not self._is_lost():
            self._world.call_at(
                self._arrival_time(), broker.submit, (client, request, self._oracle.specs[plan.number])
            )
        self._world.call_at(self._world.now + REPEAT_AFTER, self._send_request, request)

    def _on_reply(self, reply: JobAccepted | RequestRejected) -> None:
        if reply.request in self.replies:
            return
        self.replies[reply.request] = reply.reason if isinstance(reply, RequestRejected) else ""
        if reply.request % 2 or isinstance(reply, RequestRejected):
            return
        plan = self._workload.plans[reply.request // 2]
        self.jobs[plan.number] = reply.job
        if plan.cancel_after is not None:
            self._world.call_at(self._world.now + plan.cancel_after, self._send_request, reply.request + 1)

    def _is_lost(self) -> bool:
        return self._rng.random() < self.loss

    def _arrival_time(self) -> int:
        return self._world.now + self._rng.randint(0, _DELAY_MAX)
