"""Admission of jobs at a broker: checks before acceptance, and the reasons of rejections.

Every check runs before any state changes: the rules of the form, whether some cluster could ever run the job,
and the limits of the broker.
"""

from collections.abc import Sequence

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.failover.replication import ShardReplication
from hanse.core.broker.job_lifecycle import JobLifecycle
from hanse.core.broker.job_table import new_record, shape_of
from hanse.model.effects import JobAccepted, RequestRejected
from hanse.model.events import CancelRequested, JobSubmitted
from hanse.model.ids import broker_number, job_id, job_text
from hanse.model.job import JobSpec, Together
from hanse.model.job_parser import check_job
from hanse.model.messages import Shape
from hanse.model.resources import Resources
from hanse.policy.gang_topology import has_topology


def describe_misfit(shape: Shape, views: Sequence[ClusterView]) -> str:
    """Return that no cluster can hold a gang with a topology, even when empty, and how much the best one
    can. Ties go to the first cluster."""
    largest = [(view, *view.find_largest_part(shape)) for view in views]
    view, most, part = max(largest, key=lambda found: found[1])
    of_each = f"of {_ask_text(shape.ask)}"
    if not most and shape.together is Together.RACK:
        return "together: no suitable node of an allowed cluster has the attribute 'rack' in the league file"
    if not most:
        return f"spread: no suitable node of an allowed cluster has the attribute '{shape.spread}'"
    spread = f" with at most {shape.spread_max} for each '{shape.spread}'" if shape.spread_max else ""
    kind = {Together.NODE: "node", Together.RACK: "rack"}.get(shape.together, "cluster")
    best = f"{kind} {part} of cluster {view.name}" if part else f"cluster {view.name}"
    return (
        f"count: no {kind} has room for {shape.gang} tasks {of_each}{spread}: the best, {best}, has room for "
        f"{most}. Ask for fewer or smaller tasks, or let the gang spread further"
    )


def _ask_text(ask: Resources) -> str:
    """Return an ask for people: ``4 CPUs, 2 GPUs``; memory in whole mebibytes, rounded up."""
    parts = [f"{ask.cpu / 1_000:g} CPU{'' if ask.cpu == 1_000 else 's'}"] if ask.cpu else []
    parts += [f"{-(-ask.memory >> 20)} MiB"] if ask.memory else []
    parts += [f"{ask.gpu} GPU{'' if ask.gpu == 1 else 's'}"] if ask.gpu else []
    return ", ".join([*parts, *[f"{amount} {name}" for name, amount in ask.custom]])


class Admission:
    """Handler of the requests of clients."""

    def __init__(
        self, context: BrokerContext, lifecycle: JobLifecycle, replication: ShardReplication
    ) -> None:
        self.context = context
        self.shards = context.owned_shards
        self.lifecycle = lifecycle
        self.replication = replication
        self.serial = 0
        """Number of jobs accepted since the broker was created."""

    def on_job_submitted(self, event: JobSubmitted) -> None:
        """Accept or reject a job. A client id that is known returns the job that has it."""
        context = self.context
        spec = event.spec
        known_job = self.lifecycle.clients.get(spec.client_id) if spec.client_id else None
        if known_job is not None:
            record = context.jobs.get(known_job)
            if record is not None and not record.admitted:
                record.client, record.request = event.client, event.request
            else:
                context.mark("broker.submission_repeated")
                context.effects.append(JobAccepted(event.client, event.request, known_job))
            return
        reason = self._find_objection(spec)
        if reason:
            context.effects.append(RequestRejected(event.client, event.request, reason))
            return
        job = job_id(self.context.config.number, self.serial)
        self.serial += 1
        record = new_record(job, spec, self.shards.base_shard, event.at)
        record.client, record.request = event.client, event.request
        self.lifecycle.add_job(record)
        self.replication.accept_job(record)

    def _find_objection(self, spec: JobSpec) -> str:
        """Return why a job cannot be accepted; empty if it can. This changes no state."""
        problems = check_job(spec)
        if problems:
            return "; ".join(f"{problem.field}: {problem.rule}" for problem in problems)
        if (
            len(self.context.jobs) >= self.context.config.jobs_max
            or self.lifecycle.tasks + spec.task_count > self.context.config.tasks_max
        ):
            return "this broker is full. Wait for jobs to end, or submit to another broker"
        standby = self.shards.state.owned[self.shards.base_shard].standby
        if standby and self.context.links.link(standby).is_crowded:
            self.context.mark("broker.heir_behind")
            return f"this broker cannot reach its standby {standby}. Wait, or submit to another broker"
        for job in spec.after:
            is_own = broker_number(job) == self.context.config.number
            if (
                is_own
                and job not in self.context.jobs
                and job not in self.lifecycle.dependencies.ended_jobs
                and not self.shards.state.transferred
            ):
                return f"after: there is no job {job_text(job)}"
        return self._find_impossibility(spec)

    def _find_impossibility(self, spec: JobSpec) -> str:
        """Return why no cluster could ever run a job, even when empty; "" if one could, or one is unknown."""
        for group, part in enumerate(spec.groups):
            shape = shape_of(spec, group, part.count if spec.gang else 0)
            views = [view for view in self.context.views if shape.allows_cluster(view.name)]
            if not views:
                return "clusters: the job's rules exclude every cluster"
            if any(view.state.snapshot is None for view in views):
                continue
            needed = part.count if spec.gang else 1
            best = 0
            for view in views:
                best = max(best, view.count_slots(shape) if spec.gang else view.can_ever_hold(shape))
                if best >= needed:
                    break
            if best == 0 and not (has_topology(shape) and any(view.can_ever_hold(shape) for view in views)):
                return f"groups[{group}]: no node of any allowed cluster can hold a task of {part.name}"
            if best < needed and has_topology(shape):
                return f"groups[{group}].{describe_misfit(shape, views)}"
            if best < needed:
                return f"groups[{group}].count: no cluster holds a gang of more than {best} such tasks"
        return ""

    def on_cancel_requested(self, event: CancelRequested) -> None:
        """Cancel a job on the request of a client."""
        context = self.context
        record = context.jobs.get(event.job)
        if record is None:
            if event.job in self.lifecycle.dependencies.ended_jobs:
                context.effects.append(JobAccepted(event.client, event.request, event.job))
            else:
                new_owner = next(iter(self.shards.state.transferred.values()), "")
                where = f"; it may be with {new_owner}" if new_owner else ""
                context.effects.append(
                    RequestRejected(
                        event.client, event.request, f"there is no job {job_text(event.job)} here{where}"
                    )
                )
            return
        context.effects.append(JobAccepted(event.client, event.request, event.job))
        if not record.cancelled:
            self.lifecycle.cancel(record, f"asked for by {event.client}")
            self.replication.end_log.add_cancellation(record)
