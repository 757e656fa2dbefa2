"""The facts for ``hanse plan``: running tasks, waiting tasks ahead, and past durations of such work."""

import zlib
from collections.abc import Callable
from typing import Final

import msgspec

from hanse.live.readmodel.cluster_facts import ClusterFacts
from hanse.live.readmodel.read_model import Reads
from hanse.live.readmodel.start_estimate import Ahead, Occupant, Plan, estimate
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


def plan(spec: JobSpec, facts: tuple[ClusterFacts, ...], reads: Reads) -> Plan:
    """Return the estimated start of a job if it were submitted to this broker now."""
    known: dict[tuple[str, str, str], tuple[int, ...]] = {}

    def durations(name: str, tenant: str, group: str) -> tuple[int, ...]:
        key = (name, tenant, group)
        if key not in known:
            known[key] = tuple(reads.durations(*key)[-DURATIONS_MAX:])
        return known[key]

    now = wall_now()
    running = [
        Occupant(
            one.cluster,
            one.node,
            one.size,
            max(0, now - one.started) if one.started is not None else 0,
            durations(one.name, one.tenant, one.group),
        )
        for one in reads.running_on(limit=RUNNING_MAX)
        if one.node is not None
    ]
    first = spec.groups[0]
    own = durations(spec.name, spec.tenant, first.name) or ((first.duration,) if first.duration else ())
    seed = zlib.crc32(msgspec.msgpack.encode(spec))  # equal questions get equal answers
    found = estimate(spec, facts, running, _ahead(spec, reads, durations), own, seed=seed)
    if len(running) == RUNNING_MAX:
        caveat = f"More than {RUNNING_MAX} tasks run; the estimate counts only these."
        found = msgspec.structs.replace(found, caveats=(*found.caveats, caveat))
    return found


def _ahead(spec: JobSpec, reads: Reads, durations: Durations) -> list[Ahead]:
    """Return the waiting work of this broker that is not less urgent."""
    ahead: list[Ahead] = []
    for row in reads.jobs(state="queued", limit=WAITING_JOBS_MAX):
        job = parse_job(row.id)
        detail = reads.job(job) if job is not None and row.priority >= spec.priority else None
        if detail is None:
            continue
        for number, group in enumerate(detail.groups):
            waiting = group.states.get("queued", 0)
            if waiting:
                past = durations(row.name, row.tenant, group.name)
                ahead.append(Ahead(detail.spec, number, waiting, past))
    return ahead
