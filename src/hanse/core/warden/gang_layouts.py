"""Layouts of the gangs of one warden: ranks, nodes and hosts of tasks that start together, and their port.

A gang's port belongs to the host of its rank 0, where the program of rank 0 listens. Two gangs with rank 0 on
one host have different ports as long as fewer than ``GANG_PORTS`` such gangs run. The next attempt of a gang
gets another port, since connections of the last one may linger.
"""

from collections.abc import Sequence
from typing import Final

from hanse.core.config import GANG_PORTS, LOCAL_HOST
from hanse.core.warden.ledger_records import AttemptRecord
from hanse.model.ids import INDEX_BITS, INDEX_MASK, JobId, TaskId
from hanse.model.messages import GroupLayout, TaskTemplate
from hanse.model.messages.group_layout import runs_of

PORT_STEP: Final = 37
"""Distance between the first choices of two attempts of a gang: coprime to ``GANG_PORTS``, and so large that
an attempt that had to take a later port does not meet the next one."""


class GangLayouts:
    """Layouts of one cluster's gangs, and the ports in use. ``ports`` follows from the attempts."""

    def __init__(self, hosts: Sequence[str], first_port: int) -> None:
        self.hosts = tuple([host or LOCAL_HOST for host in hosts])
        """Host of each node."""
        self.first_port = first_port
        self.ports: dict[tuple[str, int], int] = {}
        """Host and port -> number of gangs that use it."""

    def lay_out(
        self, template: TaskTemplate, tasks: Sequence[TaskId], attempts: Sequence[int], nodes: Sequence[int]
    ) -> GroupLayout | None:
        """Return the layout for a batch of tasks with their nodes; None: its tasks need none."""
        job = JobId(tasks[0] >> INDEX_BITS)
        first, count = template.first, template.count
        if not template.shape.gang:
            return GroupLayout(job, first, count, template.group) if template.has_ranks else None
        pairs = enumerate(zip(tasks, nodes, strict=True))
        by_rank = sorted([(task & INDEX_MASK, node, at) for at, (task, node) in pairs])
        first, count = (first, count) if count else (by_rank[0][0], by_rank[-1][0] + 1 - by_rank[0][0])
        indices = tuple([index for index, _, _ in by_rank])
        host = self.hosts[by_rank[0][1]]
        return GroupLayout(
            job,
            first,
            count,
            template.group,
            () if len(indices) == count else indices,
            runs_of([node for _, node, _ in by_rank], self.hosts),
            self._find_port(job, attempts[by_rank[0][2]], host),
        )

    def _find_port(self, job: JobId, attempt: int, host: str) -> int:
        """Return the port of an attempt of a gang: the first free one behind the one that job and attempt
        name. If all are in use, two gangs share one."""
        start = job + PORT_STEP * attempt
        for step in range(GANG_PORTS):
            port = self.first_port + (start + step) % GANG_PORTS
            if (host, port) not in self.ports:
                return port
        return self.first_port + start % GANG_PORTS

    def count_port(self, run: AttemptRecord, step: int = 1) -> None:
        """Count the port of a gang's rank 0 that has come, or gone (``step`` = -1)."""
        key = (self.hosts[run.node], run.port)
        left = self.ports.get(key, 0) + step
        if left:
            self.ports[key] = left
        else:
            del self.ports[key]

    def check(self, runs: Sequence[AttemptRecord]) -> None:
        """Assert that the ports in use are those of the attempts."""
        expected: dict[tuple[str, int], int] = {}
        for run in runs:
            if run.port:
                key = (self.hosts[run.node], run.port)
                expected[key] = expected.get(key, 0) + 1
        assert expected == self.ports, "ports of gangs"
