"""Promises about a league that has healed and has no work left."""

from collections.abc import Sequence
from typing import Protocol

from hanse.model.ids import TaskId, task_text
from hanse.model.resources import Vector
from hanse.sim.backend import SimulatedBackend
from hanse.sim.journalled_process import JournalledProcess
from hanse.sim.world import Violation


class InspectedBroker(Protocol):
    """Methods of a broker that the checkers call."""

    def believed_free(self, cluster: str) -> list[Vector] | None:
        """Return the believed room of each node; None if the broker does not know the cluster."""
        ...

    def find_leftovers(self) -> list[str]:
        """Return descriptions of work that is left over."""
        ...

    def shards(self) -> tuple[list[str], list[str]]:
        """Return the shards that the broker owns and the shards of which it keeps copies."""
        ...


class InspectedWarden(Protocol):
    """Methods of a warden that the checkers call."""

    def advertised_free(self) -> list[Vector]:
        """Return the room that the warden advertises on each node."""
        ...

    def find_leftovers(self) -> list[str]:
        """Return descriptions of work that is left over."""
        ...

    def shards(self) -> dict[str, int]:
        """Return the shards that the warden knows."""
        ...


def check_idle(
    brokers: dict[str, JournalledProcess],
    wardens: dict[str, JournalledProcess],
    backends: Sequence[SimulatedBackend],
) -> None:
    """Check that nothing is left over (leases, claims, messages, ends) and that all views are true."""
    for backend in backends:
        for task, attempt in (*backend.live_attempts, *backend.ends):
            state = "still runs" if (task, attempt) in backend.live_attempts else "was never forgotten"
            message = f"task {task_text(TaskId(task))} attempt {attempt} {state} at {backend.runner.name}"
            raise Violation("no lease leaks", message, task)
    for name, process in (*wardens.items(), *brokers.items()):
        machine: InspectedWarden | InspectedBroker = process.machine  # type: ignore[assignment]  # checked by use
        complaints = machine.find_leftovers()
        if complaints:
            raise Violation("no lease leaks", f"{name}: " + "; ".join(complaints))
    for cluster, warden in wardens.items():
        warden_machine: InspectedWarden = warden.machine  # type: ignore[assignment]
        advertised = warden_machine.advertised_free()
        for name, broker in brokers.items():
            broker_machine: InspectedBroker = broker.machine  # type: ignore[assignment]
            view = broker_machine.believed_free(cluster)
            if view != advertised:
                raise Violation(
                    "view converges", f"{name} believes {view} of {cluster}, which offers {advertised}"
                )


def check_shard_owners(
    brokers: dict[str, JournalledProcess], wardens: dict[str, JournalledProcess], retired: Sequence[str] = ()
) -> None:
    """Check that takeovers leave nothing behind: at the end a broker owns only the shard that it created
    last, and nobody knows of any other shard. A warden may know a shard of a retired broker if the shard
    held no work."""
    promise = "no shard is left open"
    known: dict[str, None] = {}
    for name, broker in brokers.items():
        owner: InspectedBroker = broker.machine  # type: ignore[assignment]  # checked by use
        owned = owner.shards()[0]
        if [shard.rpartition("#")[0] for shard in owned] != [name]:
            raise Violation(promise, f"{name} owns {', '.join(owned)}")
        known[owned[0]] = None
    for name, warden in wardens.items():
        machine: InspectedWarden = warden.machine  # type: ignore[assignment]
        shards = [name for name in machine.shards() if name.rpartition("#")[0] not in retired]
        if sorted(shards) != sorted(known):
            raise Violation(promise, f"{name} knows {', '.join(machine.shards())}, not {', '.join(known)}")
    for name, broker in brokers.items():
        standby: InspectedBroker = broker.machine  # type: ignore[assignment]
        stale = [shard for shard in standby.shards()[1] if shard not in known]
        if stale:
            raise Violation(promise, f"{name} keeps copies for {', '.join(stale)}")
