"""Plan of a job: when and where it would start if it were submitted to this broker now."""

import zlib
from collections.abc import Callable
from typing import Final

import msgspec

from hanse.live.readmodel.cluster_facts import ObservedCluster
from hanse.live.readmodel.read_model import ReadModel
from hanse.live.readmodel.start_estimate import Plan, QueuedTaskFacts, RunningTaskFacts, estimate_start
from hanse.model.ids import parse_job
from hanse.model.job import JobSpec
from hanse.security.wall_time import wall_now

RUNNING_MAX: Final = 10_000
"""Running tasks that are read; a caveat says if there are more."""
WAITING_JOBS_MAX: Final = 200
"""Waiting jobs that are read."""
DURATIONS_MAX: Final = 100
"""Latest past durations of a kind that stand for its future ones."""

Durations = Callable[[str, str, str], tuple[int, ...]]
"""Returns past durations by job name, tenant and group."""


def plan(spec: JobSpec, facts: tuple[ObservedCluster, ...], read_model: ReadModel) -> Plan:
    """Return the estimated start of a job if it were submitted to this broker now."""
    known: dict[tuple[str, str, str], tuple[int, ...]] = {}

    def durations(name: str, tenant: str, group: str) -> tuple[int, ...]:
        key = (name, tenant, group)
        if key not in known:
            known[key] = tuple(read_model.durations(*key)[-DURATIONS_MAX:])
        return known[key]

    now = wall_now()
    running = [
        RunningTaskFacts(
            one.cluster,
            one.node,
            one.size,
            max(0, now - one.started) if one.started is not None else 0,
            durations(one.name, one.tenant, one.group),
        )
        for one in read_model.running_tasks(limit=RUNNING_MAX)
        if one.node is not None
    ]
    first = spec.groups[0]
    own = durations(spec.name, spec.tenant, first.name) or ((first.duration,) if first.duration else ())
    seed = zlib.crc32(msgspec.msgpack.encode(spec))  # equal questions get equal answers
    estimated = estimate_start(spec, facts, running, _work_ahead(spec, read_model, durations), own, seed=seed)
    if len(running) == RUNNING_MAX:
        caveat = f"More than {RUNNING_MAX} tasks run; the estimate counts only these."
        estimated = msgspec.structs.replace(estimated, caveats=(*estimated.caveats, caveat))
    return estimated


def _work_ahead(spec: JobSpec, read_model: ReadModel, durations: Durations) -> list[QueuedTaskFacts]:
    """Return the waiting work of this broker that is not less urgent."""
    ahead: list[QueuedTaskFacts] = []
    for row in read_model.jobs(state="queued", limit=WAITING_JOBS_MAX):
        job = parse_job(row.id)
        detail = read_model.job(job) if job is not None and row.priority >= spec.priority else None
        if detail is None:
            continue
        for number, group in enumerate(detail.groups):
            waiting = group.states.get("queued", 0)
            if waiting:
                past = durations(row.name, row.tenant, group.name)
                ahead.append(QueuedTaskFacts(detail.spec, number, waiting, past))
    return ahead
