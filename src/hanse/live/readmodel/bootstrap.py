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
from hanse.live.readmodel.clock_mapping import Times
from hanse.live.readmodel.live_job import new_live
from hanse.live.readmodel.projector import SERIAL_BITS, Projector
from hanse.live.readmodel.projector_state import Bid, Memory, Pending, WardNote
from hanse.model.ids import broker_number, job_id, task_id
from hanse.model.messages import ShardId

STATES: Final = {
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


def from_state(broker: str, state: bytes, position: int, clusters: tuple[str, ...]) -> Projector:
    """Build the projector of a broker from its dumped ``state`` after the event at ``position``.

    ``clusters``: cluster names in the order of the broker's configuration.
    """
    saved = decode_state(state)
    before = position << SERIAL_BITS
    memory = Memory(dropped_changes=before, dropped_decisions=before)
    for peer, link in saved.links.items():
        memory.links[peer] = Link(peer, link.session, received=link.received, ahead=link.ahead)
        memory.sent[peer] = link.sent
    memory.base = f"{broker}#{saved.owned_shards.generation}"
    memory.owned = dict.fromkeys(saved.owned_shards.owned, True)
    for record in saved.jobs.values():
        if record.shard.rpartition("#")[0] == broker:
            memory.newest = job_id(broker_number(record.id), saved.serial - 1)
        else:
            memory.strangers[broker_number(record.id)] = True
        if not record.admitted:
            memory.pending.append(Pending(record.client, record.request, record.spec, record.accepted_at))
    projector = Projector(broker, memory, Times())
    for record in saved.jobs.values():
        if record.admitted:
            _add(projector, record, clusters)
    for shard, ward in upgrade_standby_shards(saved.standby_shards).items():
        _keep(projector, shard, ward)
    projector.begin(position)
    return projector


def _add(projector: Projector, record: JobRecord, clusters: tuple[str, ...]) -> None:
    """Add a job that the broker owns."""
    job = new_live(record.id, record.spec, projector.broker, record.shard, record.accepted_at)
    job.waits = dict.fromkeys(record.after)
    projector.remind(job)
    job.cancelled, job.cancel_reason = record.cancelled, record.cancel_reason
    job.failures = dict(record.failures)
    placed: dict[int, list[int]] = {}
    for index, code in enumerate(record.state):
        state = STATES[code]
        job.move(index, state)
        if state == PLACED:
            placed.setdefault(record.place[index], []).append(index)
        elif state >= RUNNING:
            job.attempt[index] = record.attempt[index]
            place = record.place[index]
            job.place[index] = cluster = projector.cluster(clusters[place]) if place >= 0 else -1
            if state == RUNNING:
                job.used[cluster] = None
            cells = (job.id, index, record.attempt[index], state, cluster, *(None,) * 10)
            projector.sheet.end(task_id(job.id, index), (*cells, job.failures.get(index)))
    for place, tasks in placed.items():
        cluster = projector.cluster(clusters[place])
        for index in tasks:
            job.attempt[index], job.place[index] = record.attempt[index], cluster
        attempts = tuple([record.attempt[index] for index in tasks])
        job.add_lot(cluster, tuple(tasks), attempts, [-1] * len(tasks), None)
    projector.live[job.id] = job
    projector.touch(job)


def _keep(projector: Projector, shard: ShardId, ward: StandbyShard) -> None:
    """Add the copies of a peer's jobs."""
    projector.memory.wards[shard] = WardNote(ward.owner, ward.term)
    if ward.is_taking_over:
        projector.memory.bids[shard] = Bid(ward.takeover_id, ward.running, ward.ends)
    for replica in ward.jobs.values():
        done = tuple(
            (index + at, state, attempt)
            for index, state, attempt, count in ward.task_ends[replica.job].runs()
            for at in range(count)
        )
        cancelled = replica.cancelled or replica.job in ward.cancelled
        copy = msgspec.structs.replace(replica, ends=done, cancelled=cancelled)
        projector.heirs.keep(ward.owner, shard, copy, ward.accepted_at[replica.job])
