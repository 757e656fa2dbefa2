"""Estimates of one broker: how long a task takes on each node class of each cluster, with its data.

Run times are learned from tasks that succeeded, per kind of work and node class, and counted when all tasks
of the group have ended: those that end first are the short ones. Transfers are estimated from the bytes that
the job declares and the rates between clusters.

A kind is a tenant's name of a job and its group; the work of a kind is the part of the job's name before the
last slash, which several kinds share. Both are numbers here: names stay with their broker.
"""

from hashlib import blake2b
from typing import Final

import msgspec

from hanse.core.broker.cluster_view import ClusterView
from hanse.core.broker.context import BrokerContext
from hanse.core.broker.job_table import RUNNING, JobRecord, kind_of
from hanse.model.ids import SECOND, index_of, job_of
from hanse.model.job import JobSpec
from hanse.model.messages import Outcome, TaskUpdates
from hanse.policy.finish_time.exact_math import exact_log

SAMPLES_MAX: Final = 256
"""Tasks of one group from which durations are learned: more would add little."""
COSTS_MAX: Final = 65_536
"""Remembered costs of a kind in a cluster. When there are more, all are dropped and computed again."""
LOCAL_RATE: Final = 400_000_000
"""Bytes a second that a task reads from its own cluster, unless the league says otherwise."""
REMOTE_RATE: Final = 125_000_000
"""Bytes a second that a task reads from another cluster, unless the league says otherwise."""
KIND_BYTES: Final = 7
"""Bytes of a kind's number: it fits a column of 64 bits, and two of a million kinds hardly ever share one."""
COST_BITS: Final = 6
"""Leading bits of a cost that count, 2 to 3 per cent: finer changes are not worth a message."""


class FinishEstimates:
    """Estimates of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.is_on = context.rank.follows_estimates
        """True if tasks are placed by estimates, and durations learned."""
        self._costs: dict[tuple[int, int], tuple[tuple[str, ...], tuple[int, ...]]] = {}
        """Cluster and kind of a shape -> names of the classes, and costs; a change of the table empties it."""

    # --- kinds ---------------------------------------------------------------------------------------------

    def shape_kind(self, spec: JobSpec, group: int) -> int:
        """Return the number of a group's kind and of the places of its data; 0 if nothing is estimated."""
        if not self.is_on:
            return 0
        part = spec.groups[group]
        return _number(f"{kind_of(spec, group)}\\0{part.input_bytes}\\0{','.join(spec.data)}")

    # --- estimates -----------------------------------------------------------------------------------------

    def costs(self, view: ClusterView, record: JobRecord, group: int, kind: int) -> tuple[int, ...]:
        """Return the milliseconds from the start to the end of a task on each node class of a cluster."""
        names = view.node_classes.names
        known = self._costs.get((view.index, kind))
        if known is not None and known[0] is names:
            return known[1]
        transfer = self._transfer_seconds(view, record.spec, group)
        costs = tuple([rounded_cost(1000 * (transfer + run)) for run in self._run_seconds(record, group, names)])
        if len(self._costs) >= COSTS_MAX:
            self._costs.clear()
        self._costs[view.index, kind] = names, costs
        return costs

    def _transfer_seconds(self, view: ClusterView, spec: JobSpec, group: int) -> float:
        """Return the seconds in which a task reads its input from the nearest cluster that holds it."""
        size = spec.groups[group].input_bytes
        if not size or not spec.data:
            return 0.0
        rate = max([self.context.config.rate_between(source, view.name) for source in spec.data])
        return size / rate


def rounded_cost(milliseconds: float) -> int:
    """Return a cost without its last bits: at least 1."""
    whole = max(1, int(milliseconds))
    drop = max(0, whole.bit_length() - COST_BITS)
    return whole >> drop << drop


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=KIND_BYTES).digest()) or 1
