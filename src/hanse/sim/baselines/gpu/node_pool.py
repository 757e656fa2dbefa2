"""Idle amounts of the nodes, and the placement of gangs: all pieces or none."""

from enum import Enum

import numpy as np
import numpy.typing as npt

from hanse.sim.baselines.gpu.workload import RESOURCES, GpuWorkload, Ints, Where

Flags = npt.NDArray[np.bool_]


class NodeRule(Enum):
    """Rule for the node of a piece; ties go to the node with the lower number."""

    FIRST = "first node with room"
    BEST = "least left over: the sum of idle shares after placing"
    ALIGNED = "largest inner product of demand and idle, both as shares of the largest node"


class NodePool:
    """Idle amounts of every node."""

    def __init__(self, workload: GpuWorkload, capacity: Ints) -> None:
        self.free = capacity.copy()
        # amounts count as shares of the largest node, so that milli-CPU and bytes can be added
        self.scale = np.maximum(capacity.max(axis=0, initial=1), 1).astype(np.float64)
        self._parts = [
            [(demand, int(pieces)), (rest, int(any(rest.tolist())))]
            for demand, rest, pieces in zip(
                workload.demand, workload.rest, workload.pieces.tolist(), strict=True
            )
        ]
        self._capacity = capacity

    def place(self, job: int, rule: NodeRule) -> Where | None:
        """Take room for all pieces of a job, or for none."""
        taken: list[tuple[int, int]] = []
        for kind, (amount, number) in enumerate(self._parts[job]):
            for _ in range(number):
                node = self._find_node(amount, rule)
                if node < 0:
                    self.release(job, tuple(taken))
                    return None
                self.free[node] -= amount
                taken.append((node, kind))
        return tuple(taken)

    def retake(self, job: int, where: Where) -> bool:
        """Take exactly this room if all of it is idle."""
        taken: list[tuple[int, int]] = []
        for node, kind in where:
            amount = self._parts[job][kind][0]
            if bool((self.free[node] < amount).any()):
                self.release(job, tuple(taken))
                return False
            self.free[node] -= amount
            taken.append((node, kind))
        return True

    def release(self, job: int, where: Where) -> None:
        """Return the room of a job."""
        for node, kind in where:
            self.free[node] += self._parts[job][kind][0]

    def clear(self) -> None:
        """Make everything idle."""
        self.free = self._capacity.copy()

    def fits(self, amount: Ints) -> Flags:
        """Return [N] the nodes that have room for a piece."""
        room: Flags = self.free[:, 0] >= amount[0]
        for resource in range(1, RESOURCES):
            room &= self.free[:, resource] >= amount[resource]
        return room

    def _find_node(self, amount: Ints, rule: NodeRule) -> int:
        room = np.flatnonzero(self.fits(amount))
        if not len(room):
            return -1
        if rule is NodeRule.FIRST:
            return int(room[0])
        idle = self.free[room] / self.scale
        if rule is NodeRule.BEST:
            return int(room[int(np.argmin(idle.sum(axis=1)))])
        return int(room[int(np.argmax(idle @ (amount / self.scale)))])


class StretchLedger:
    """Record of the stretches of running."""

    def __init__(self, jobs: int) -> None:
        self.start = [-1] * jobs
        self.end = [-1] * jobs
        self.job: list[int] = []
        self.begin: list[int] = []
        self.until: list[int] = []
        self.where: list[Where] = []
        self._open: dict[int, int] = {}

    def open(self, job: int, where: Where, now: int) -> None:
        """Record that a job begins to run."""
        assert job not in self._open, "a job runs in one place at a time"
        if self.start[job] < 0:
            self.start[job] = now
        self._open[job] = len(self.job)
        self.job.append(job)
        self.begin.append(now)
        self.until.append(-1)
        self.where.append(where)

    def close(self, job: int, now: int, *, is_done: bool) -> Where:
        """Record that a job stops; return where it ran."""
        index = self._open.pop(job)
        self.until[index] = now
        if is_done:
            assert self.end[job] < 0, "a job ends once"
            self.end[job] = now
        return self.where[index]
