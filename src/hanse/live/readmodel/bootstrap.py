"""Construction of a projector from a broker's dumped state, in the middle of the broker's history.

A journal drops its oldest records. The state after the oldest snapshot holds live jobs, the states of their
tasks, and the copies of peers' jobs. It does not hold jobs that had ended, decisions, or the nodes, starts
and ends of earlier attempts; the read model does not show these.
"""

import msgspec

from hanse.api.row_records import PLACED, RUNNING
from hanse.core.broker.failover.standby import StandbyShard, upgrade_standby_shards
from hanse.core.broker.job_table import JobRecord
from hanse.core.broker.state import decode_state
from hanse.live.readmodel.clock_mapping import ClockMapping
from hanse.live.readmodel.projector import SERIAL_BITS, Projector
from hanse.live.readmodel.projector_state import ProjectorState
from hanse.live.readmodel.unended_job import STATE_OF_CODE, new_unended_job
from hanse.model.ids import task_id
from hanse.model.messages import ShardId


def projector_from_state(broker: str, state: bytes, position: int, clusters: tuple[str, ...]) -> Projector:
    """Build the projector of a broker from its dumped ``state`` after the event at ``position``.

    ``clusters``: cluster names in the order of the broker's configuration.
    """
    saved = decode_state(state)
    last_serial = position << SERIAL_BITS
    projector_state = ProjectorState(dropped_changes=last_serial, dropped_decisions=last_serial)
    projector = Projector(broker, projector_state, ClockMapping())
    for shard, standby in upgrade_standby_shards(saved.standby_shards).items():
        _add_copies(projector, shard, standby)
    for record in saved.jobs.values():
        if record.admitted or record.cancelled:
            _add_job(projector, record, clusters)
    projector.restart_at(position)
    return projector


def _add_job(projector: Projector, record: JobRecord, clusters: tuple[str, ...]) -> None:
    """Add a job that the broker owns."""
    job = new_unended_job(record.id, record.spec, projector.broker, record.shard, record.accepted_at)
    projector.add_job(job)
    job.cancelled, job.cancel_reason = record.cancelled, record.cancel_reason
    job.failures = dict(record.failures)
    placed: dict[int, list[int]] = {}
    for index, code in enumerate(record.state):
        state = STATE_OF_CODE[code]
        job.set_state(index, state)
        if state == PLACED:
            placed.setdefault(record.place[index], []).append(index)
        elif state >= RUNNING:
            job.attempt[index] = record.attempt[index]
            place = record.place[index]
            job.cluster[index] = cluster = projector.cluster_number(clusters[place]) if place >= 0 else -1
            if state == RUNNING:
                job.clusters_used[cluster] = None
            cells = (job.id, index, record.attempt[index], state, cluster, *(None,) * 10)
            projector.writes.end_task(task_id(job.id, index), (*cells, job.failures.get(index)))
    for place, tasks in placed.items():
        cluster = projector.cluster_number(clusters[place])
        for index in tasks:
            job.attempt[index], job.cluster[index] = record.attempt[index], cluster
        attempts = tuple([record.attempt[index] for index in tasks])
        job.add_placement(cluster, tuple(tasks), attempts, [-1] * len(tasks), None)
    if job.cancelled:
        projector.tasks.cancel_waiting(job)


def _add_copies(projector: Projector, shard: ShardId, standby: StandbyShard) -> None:
    """Add the copies of a peer's jobs."""
    for replica in standby.jobs.values():
        ends = tuple(
            (index + at, state, attempt)
            for index, state, attempt, count in standby.task_ends[replica.job].runs()
            for at in range(count)
        )
        cancelled = replica.cancelled or replica.job in standby.cancelled
        copy = msgspec.structs.replace(replica, ends=ends, cancelled=cancelled)
        projector.copies.add_copy(standby.owner, shard, copy, standby.accepted_at[replica.job])
