"""Promise that brokers route questions about a job to a broker that can answer them."""

from collections.abc import Collection, Iterable
from typing import Protocol

from hanse.model.ids import JobId, job_text
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.world import Violation


class AnsweringBroker(Protocol):
    """Methods by which a broker's HTTP API routes questions about jobs."""

    def is_owner_of(self, job: JobId) -> bool:
        """True if the job belongs to this broker and has not ended."""
        ...

    def find_answering_broker(self, job: JobId, asked: Collection[str] = ()) -> str:
        """Return the broker to ask about a job: itself, another one, or "" if it knows of none."""
        ...


def check_job_routing(brokers: dict[str, JournalledProcess], jobs: Iterable[int]) -> None:
    """Check that brokers route questions about a job to the broker that owns it or remembers its end; if
    there is none, to a broker that says so."""
    promise = "brokers route to the owner"
    machines: dict[str, AnsweringBroker] = {name: one.machine for name, one in brokers.items()}  # type: ignore[misc]
    for job in map(JobId, jobs):
        knowing_brokers = [
            name for name, machine in machines.items() if machine.find_answering_broker(job) == name
        ]
        for first, machine in machines.items():
            path, next_broker = [first], machine.find_answering_broker(job)
            while (
                next_broker in machines and next_broker != path[-1]
            ):  # a retired broker answers no questions
                path.append(next_broker)
                if len(path) > len(machines):
                    raise Violation(promise, f"job {job_text(job)}: a circle of routes, {' to '.join(path)}")
                next_broker = machines[next_broker].find_answering_broker(job, path)
            if knowing_brokers and path[-1] not in knowing_brokers:
                route = " to ".join(path)
                raise Violation(
                    promise, f"job {job_text(job)} is known to {knowing_brokers}; the route was {route}"
                )
