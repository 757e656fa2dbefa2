"""The broker's door: which jobs it takes, and why it does not take the others.

Whatever is wrong with a job is said before anything changes: a broken rule of the form, a job that no
cluster could ever run, a broker that is full.
"""

from hanse.core.broker.context import Desk
from hanse.core.broker.failover.replication import Estates
from hanse.core.broker.job_lifecycle import Careers
from hanse.core.broker.job_table import new_record, shape_of
from hanse.model.effects import Accepted, Rejected
from hanse.model.events import CancelRequested, Submitted
from hanse.model.ids import broker_number, job_id, job_text
from hanse.model.job import JobSpec
from hanse.model.job_parser import check_job


class Admission:
    """Takes requests of clients."""

    def __init__(self, desk: Desk, careers: Careers, estates: Estates) -> None:
        self.desk = desk
        self.careers = careers
        self.estates = estates
        self.serial = 0
        """Jobs accepted so far, ever."""

    def submit(self, event: Submitted) -> None:
        """Take a job, or say why not; the same client id twice gives the same job."""
        desk = self.desk
        spec = event.spec
        known = self.careers.clients.get(spec.client_id) if spec.client_id else None
        if known is not None:
            record = desk.jobs.get(known)
            if record is not None and not record.admitted:
                record.client, record.request = event.client, event.request
            else:
                desk.mark("broker.submission_repeated")
                desk.out.append(Accepted(event.client, event.request, known))
            return
        reason = self._objection(spec)
        if reason:
            desk.out.append(Rejected(event.client, event.request, reason))
            return
        job = job_id(self.desk.config.number, self.serial)
        self.serial += 1
        record = new_record(job, spec, self.estates.base, event.at)
        record.client, record.request = event.client, event.request
        self.careers.enter(record)
        self.estates.accept(record)

    def _objection(self, spec: JobSpec) -> str:
        """Why a job cannot be taken; empty if it can. Nothing has changed when there is one."""
        problems = check_job(spec)
        if problems:
            return "; ".join(f"{problem.field}: {problem.rule}" for problem in problems)
        if (
            len(self.desk.jobs) >= self.desk.config.jobs_max
            or self.careers.tasks + spec.tasks > self.desk.config.tasks_max
        ):
            return "this broker is full: wait for jobs to end, or submit to another broker"
        heir = self.estates.state.owned[self.estates.base].heir
        if heir and self.desk.post.link(heir).crowded:
            self.desk.mark("broker.heir_behind")
            return f"this broker cannot reach its heir {heir}: wait a moment, or submit to another broker"
        for job in spec.after:
            mine = broker_number(job) == self.desk.config.number
            if (
                mine
                and job not in self.desk.jobs
                and job not in self.careers.ended
                and not self.estates.state.given
            ):
                return f"after: there is no job {job_text(job)}"
        return self._impossible(spec)

    def _impossible(self, spec: JobSpec) -> str:
        """Why no cluster could ever run a job, empty or not; empty while some cluster is still unknown."""
        for group, part in enumerate(spec.groups):
            shape = shape_of(spec, group, part.count if spec.gang else 0)
            views = [view for view in self.desk.views if shape.may_use(view.name)]
            if not views:
                return "clusters: the rules of this job leave no cluster to run in"
            if any(view.sight.snapshot is None for view in views):
                continue
            needed = part.count if spec.gang else 1
            best = 0
            for view in views:
                best = max(best, view.slots(shape) if spec.gang else view.takes(shape))
                if best >= needed:
                    break
            if best == 0:
                return (
                    f"groups[{group}]: no node of any allowed cluster has what a task of {part.name} asks for"
                )
            if best < needed:
                return f"groups[{group}].count: no cluster holds a gang of more than {best} of these"
        return ""

    def cancel(self, event: CancelRequested) -> None:
        """End a job that a client no longer wants."""
        desk = self.desk
        record = desk.jobs.get(event.job)
        if record is None:
            if event.job in self.careers.ended:
                desk.out.append(Accepted(event.client, event.request, event.job))
            else:
                adopter = next(iter(self.estates.state.given.values()), "")
                where = f"; it may be with {adopter}" if adopter else ""
                desk.out.append(
                    Rejected(
                        event.client, event.request, f"there is no job {job_text(event.job)} here{where}"
                    )
                )
            return
        desk.out.append(Accepted(event.client, event.request, event.job))
        if not record.cancelled:
            self.careers.cancel(record, f"asked for by {event.client}")
            self.estates.job_cancelled(record)
