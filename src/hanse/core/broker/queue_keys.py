"""Keys of a broker's jobs in its queue, and the events that change them.

Most orders need a key once, when a job is queued. An order that ``follows_progress`` needs another when tasks
of the job end, one that ``follows_usage`` when the share of the league changes that the job's tenant uses.
That share is what this broker knows for certain: its own tasks from the claim to the end, at the sizes chosen
in advance or the least ones. Tasks that other brokers have accepted for the same tenant are not counted.

Usage is neither dumped nor restored: it is computed from the jobs. Only an order that asks for it pays: each
change looks at the task states of one job, and a change of the share in thousandths at all jobs.
"""

from operator import is_
from typing import Final

import numpy as np

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.finish_estimates import FinishEstimates
from hanse.core.broker.job_table import CLAIMED, RUNNING, JobRecord, first_task
from hanse.model.ids import JobId
from hanse.model.messages import QueueKey
from hanse.model.resources import Resources, dominant_share
from hanse.policy.node_columns import NodeColumns

STEP: Final = 1_000
"""Millionths of the league in one step of ``JobFacts.tenant_usage``: finer changes leave keys alone."""


class QueueKeys:
    """Keys of one broker's jobs. ``touched_lines``: lines whose demand may have changed in this step."""

    def __init__(
        self, context: BrokerContext, touched_lines: dict[int, None], estimates: FinishEstimates
    ) -> None:
        self._context = context
        self._estimates = estimates
        self._touched_lines = touched_lines
        self.follows_usage = context.order.follows_usage
        self.follows_progress = context.order.follows_progress or self.follows_usage
        """True if the end of a task may change a key."""
        self._held: dict[JobId, Resources] = {}
        """Job -> what its tasks hold; jobs that hold nothing are left out."""
        self._used: dict[str, Resources] = {}
        """Tenant -> sum over its jobs; tenants that hold nothing are left out."""
        self._shares: dict[str, int] = {}
        """Tenant -> share under which its jobs have their keys."""
        self._total = Resources()
        self._measured: list[NodeColumns] = []
        """Nodes of each cluster of which ``_total`` is the sum."""
        self.outdated: dict[JobId, JobRecord] | None = None
        """Jobs with ended tasks whose keys are computed together, because one message reports many ends;
        None: keys are computed at once."""

    def key(self, record: JobRecord) -> QueueKey:
        """Return the key of a job now."""
        learned = self._estimates.expected_duration(record.spec) if self._estimates.is_on else 0
        if not self.follows_usage:
            return self._context.order.key(record.facts(0, learned))
        self._follow_total()
        return self._context.order.key(record.facts(self._shares.get(record.spec.tenant, 0), learned))

    def on_progress(self, record: JobRecord) -> None:
        """Update the keys after the end of tasks of a job."""
        if self.follows_usage:
            self.on_usage(record)
        if self._context.order.follows_progress:
            if self.outdated is None:
                self._rekey(record)
            else:
                self.outdated[record.id] = record

    def update_outdated(self) -> None:
        """Compute the keys of the jobs that wait for it. Call this before the queue is read."""
        if self.outdated:
            for record in self.outdated.values():
                self._rekey(record)
            self.outdated.clear()

    def on_usage(self, record: JobRecord, is_leaving: bool = False) -> None:
        """Update the keys of a tenant's jobs after tasks of one have been claimed, have ended, or wait again.

        ``is_leaving``: the job is over, or another broker counts it from now on.
        """
        if not self.follows_usage:
            return
        tenant, before = record.spec.tenant, self._held.pop(record.id, Resources())
        now = Resources() if is_leaving else held_resources(record)
        used = self._used.pop(tenant, Resources()).minus(before).plus(now)
        if now != Resources():
            self._held[record.id] = now
        if used != Resources():
            self._used[tenant] = used
        self._follow_total()
        if self._update_share(tenant):
            for other in self._context.jobs.values():
                if other.spec.tenant == tenant:
                    self._rekey(other)

    def _update_share(self, tenant: str) -> bool:
        """Compute the share of a tenant; return True if it has changed."""
        used, before = self._used.get(tenant), self._shares.pop(tenant, 0)
        share = dominant_share(used, self._total)[0] // STEP if used is not None else 0
        if share:
            self._shares[tenant] = share
        return share != before

    def _follow_total(self) -> None:
        """Update all shares and keys if the nodes have changed that this broker knows.

        After a restart that is so, too: then no key differs from what it was, because shares depend on the
        jobs and nodes alone.
        """
        nodes = [view.usable for view in self._context.views]
        if len(nodes) == len(self._measured) and all(map(is_, nodes, self._measured)):
            return
        self._measured, self._total = nodes, Resources()
        for view in self._context.views:
            self._total = self._total.plus(_capacity(view))
        for tenant in {**self._shares, **self._used}:
            self._update_share(tenant)
        for record in self._context.jobs.values():
            self._rekey(record)

    def _rekey(self, record: JobRecord) -> None:
        key: QueueKey | None = None
        for group, waiting in enumerate(record.waiting):
            if not waiting or record.lines[group] < 0:
                continue
            if key is None:
                key = self.key(record)
            if key != record.keys[group]:
                self._context.queue.push(self._context.jobs, record, group, key)
                self._touched_lines[record.lines[group]] = None

    def restore(self) -> None:
        """Compute the usage of the restored jobs; their keys are as they were."""
        self._held.clear()
        self._used.clear()
        self._shares.clear()
        self._measured.clear()
        if not self.follows_usage:
            return
        for record in self._context.jobs.values():
            held = held_resources(record)
            if held != Resources():
                self._held[record.id] = held
                self._used[record.spec.tenant] = self._used.get(record.spec.tenant, Resources()).plus(held)

    def check(self) -> None:
        """Assert that no key is out of date, and that the usage is that of the jobs."""
        assert not self.outdated
        if not self.follows_usage:
            return
        held = {record.id: held_resources(record) for record in self._context.jobs.values()}
        assert self._held == {job: what for job, what in held.items() if what != Resources()}
        used: dict[str, Resources] = {}
        for job, what in self._held.items():
            tenant = self._context.jobs[job].spec.tenant
            used[tenant] = used.get(tenant, Resources()).plus(what)
        assert self._used == used


def held_resources(record: JobRecord) -> Resources:
    """Return what the claimed, placed and running tasks of a job hold."""
    states = np.frombuffer(record.state, dtype=np.uint8)
    total = Resources()
    for group, part in enumerate(record.spec.groups):
        first = first_task(record, group)
        column = states[first : first + part.count]
        total = total.plus(part.ask.times(int(((column >= CLAIMED) & (column <= RUNNING)).sum())))
    for index, size in record.sizes.items():
        if CLAIMED <= record.state[index] <= RUNNING:
            total = total.minus(record.spec.groups[record.group_of(index)].ask).plus(size)
    return total


def _capacity(view: ClusterView) -> Resources:
    """Return what all nodes of a cluster have together."""
    sums = [int(column.sum()) for column in view.usable.capacity]
    if not sums:
        return Resources()
    return Resources(sums[0], sums[1], sums[2], tuple(zip(view.dimensions[3:], sums[3:], strict=True)))
