"""Construction of a projector from a broker's dumped state, in the middle of the broker's history.

A journal drops its oldest records. The state after the oldest snapshot holds live jobs, the states of their
tasks, and the copies of peers' jobs. It does not hold jobs that had ended, decisions, or the nodes, starts
and ends of earlier attempts; the read model does not show these.
"""

from typing import Final

import msgspec

from hanse.api.rows import BLOCKED, CANCELLED, FAILED, PLACED, QUEUED, RUNNING, SUCCEEDED
from hanse.core.broker import job_table
from hanse.core.broker.failover.standby import StandbyShard, upgrade_standby_shards
from hanse.core.broker.job_table import JobRecord
from hanse.core.broker.state import decode_state
from hanse.core.messaging.link import Link
from hanse.live.readmodel.clock_mapping import ClockMapping
from hanse.live.readmodel.live_job import new_live_job
from hanse.live.readmodel.projector import SERIAL_BITS, Projector
from hanse.live.readmodel.projector_state import (
    PendingSubmission,
    PendingTakeover,
    ProjectorState,
    StandbyNote,
)
from hanse.model.ids import broker_number, job_id, task_id
from hanse.model.messages import ShardId

STATE_OF_CODE: Final = {
    job_table.BLOCKED: BLOCKED,
    job_table.WAITING: QUEUED,
    job_table.CLAIMED: PLACED,
    job_table.PLACED: PLACED,
    job_table.RUNNING: RUNNING,
    job_table.SUCCEEDED: SUCCEEDED,
    job_table.FAILED: FAILED,
    job_table.CANCELLED: CANCELLED,
}
"""State code in a broker's job table -> state code in the read model."""


def projector_from_state(broker: str, state: bytes, position: int, clusters: tuple[str, ...]) -> Projector:
    """Build the projector of a broker from its dumped ``state`` after the event at ``position``.

    ``clusters``: cluster names in the order of the broker's configuration.
    """
    saved = decode_state(state)
    last_serial = position << SERIAL_BITS
    projector_state = ProjectorState(dropped_changes=last_serial, dropped_decisions=last_serial)
    for peer, link in saved.links.items():
        projector_state.links[peer] = Link(peer, link.session, received=link.received, ahead=link.ahead)
        projector_state.sent[peer] = link.sent
    projector_state.base = f"{broker}#{saved.owned_shards.generation}"
    projector_state.owned = dict.fromkeys(saved.owned_shards.owned, True)
    for record in saved.jobs.values():
        if record.shard.rpartition("#")[0] == broker:
            projector_state.newest = job_id(broker_number(record.id), saved.serial - 1)
        else:
            projector_state.strangers[broker_number(record.id)] = True
        if not record.admitted:
            projector_state.pending.append(
                PendingSubmission(record.client, record.request, record.spec, record.accepted_at)
            )
    projector = Projector(broker, projector_state, ClockMapping())
    for record in saved.jobs.values():
        if record.admitted:
            _add_job(projector, record, clusters)
    for shard, standby in upgrade_standby_shards(saved.standby_shards).items():
        _add_copies(projector, shard, standby)
    projector.restart_at(position)
    return projector


def _add_job(projector: Projector, record: JobRecord, clusters: tuple[str, ...]) -> None:
    """Add a job that the broker owns."""
    job = new_live_job(record.id, record.spec, projector.broker, record.shard, record.accepted_at)
    job.waiting_for = dict.fromkeys(record.after)
    projector.index_dependencies(job)
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
    projector.live_jobs[job.id] = job
    projector.mark_changed(job)


def _add_copies(projector: Projector, shard: ShardId, standby: StandbyShard) -> None:
    """Add the copies of a peer's jobs."""
    projector.state.wards[shard] = StandbyNote(standby.owner, standby.term)
    if standby.is_taking_over:
        projector.state.bids[shard] = PendingTakeover(standby.takeover_id, standby.running, standby.ends)
    for replica in standby.jobs.values():
        ends = tuple(
            (index + at, state, attempt)
            for index, state, attempt, count in standby.task_ends[replica.job].runs()
            for at in range(count)
        )
        cancelled = replica.cancelled or replica.job in standby.cancelled
        copy = msgspec.structs.replace(replica, ends=ends, cancelled=cancelled)
        projector.failover.add_copy(standby.owner, shard, copy, standby.accepted_at[replica.job])
