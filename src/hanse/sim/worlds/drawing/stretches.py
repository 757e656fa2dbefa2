"""Stretch of a trace from which work is taken: whole jobs and DAGs of its first or last part, cut to size.

A *submission* is a job, or a DAG with all its jobs. Submissions are ordered by arrival; the training stretch
has the first ``TRAIN_SHARE`` of them, the test stretch the others, so that no job is in both.
"""

from typing import Final

import msgspec
import numpy as np

from hanse.sim.traces.chunk import JobChunk, take
from hanse.sim.worlds.columns import Floats, Ints
from hanse.sim.worlds.world import SECOND, WorkRules, WorldError

TRAIN_SHARE: Final = 0.6
STRETCHES: Final = ("train", "test")
DAG_DEPTH_MAX: Final = 1_000
"""Jobs on the longest path of a DAG; edges to deeper jobs, and those of cycles, are left out."""
GAP_LEAST: Final = 1
"""Microseconds between two passes over a stretch whose jobs all arrive at once."""


class TraceStretch(msgspec.Struct, frozen=True, eq=False):
    """J jobs of U submissions, with T tasks; the jobs of a submission stand together, earlier ones first."""

    name: str
    arrival: Ints
    """[J] microseconds from the first arrival of the stretch."""
    submission_offset: Ints
    """[U+1] bounds of the submissions' jobs."""
    offset: Ints
    """[J+1] bounds of the jobs' tasks."""
    duration: Ints
    """[T] microseconds within the bounds of a task; 0 throughout if the trace has no durations."""
    estimate: Ints
    cpu: Ints
    memory: Ints
    gpu: Ints
    """[J] as in ``JobChunk``."""
    later: Ints
    earlier: Ints
    """[E] edges: job ``later[i]`` starts after job ``earlier[i]`` has ended."""
    has_durations: bool

    @property
    def job_count(self) -> int:
        """Number of jobs."""
        return len(self.arrival)

    @property
    def submission_count(self) -> int:
        """Number of submissions."""
        return len(self.submission_offset) - 1

    @property
    def pass_span(self) -> int:
        """Microseconds after which another pass over the stretch begins: the span and a mean gap."""
        span = int(self.arrival.max())
        return span + max(GAP_LEAST, span // self.submission_count)


def cut_stretch(name: str, chunk: JobChunk, stretch: str, rules: WorkRules) -> TraceStretch:
    """Return a stretch of a trace."""
    if stretch not in STRETCHES:
        raise WorldError(f"there is no stretch {stretch!r}; there are {', '.join(STRETCHES)}")
    jobs = take(chunk, np.flatnonzero(chunk.counts() > 0)) if chunk.job_count else chunk
    later, earlier, depth = _edges_and_depths(jobs)
    # a DAG arrives with its first job; without edges every entry is a submission
    is_dag = chunk.needs is not None
    group = np.unique(jobs.parent, return_inverse=True)[1] if is_dag else np.arange(jobs.job_count)
    first = np.full(int(group.max()) + 1 if jobs.job_count else 0, np.iinfo(np.int64).max)
    np.minimum.at(first, group, jobs.arrival)
    order = np.lexsort((np.arange(jobs.job_count), depth, group, first[group]))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    border = int(len(starts) * TRAIN_SHARE)
    chosen = slice(0, border) if stretch == "train" else slice(border, len(starts))
    bounds = np.append(starts, jobs.job_count)[chosen.start : chosen.stop + 1]
    if len(bounds) < 2:
        raise WorldError(
            f"{name}: the {stretch} stretch is empty, because the trace has only {len(starts)} jobs; take a "
            "longer trace"
        )
    picked = order[bounds[0] : bounds[-1]]
    return _build(name, take(jobs, picked), bounds - bounds[0], (later, earlier), picked, rules)


def _build(
    name: str, jobs: JobChunk, bounds: Ints, edges: tuple[Ints, Ints], picked: Ints, rules: WorkRules
) -> TraceStretch:
    """Return the stretch of some jobs; ``edges`` are between places in the trace, as ``picked`` is."""
    place = np.full(int(max(picked.max(), *(end.max() if len(end) else 0 for end in edges))) + 1, -1)
    place[picked] = np.arange(len(picked))
    later, earlier = place[edges[0]], place[edges[1]]
    kept = (later >= 0) & (earlier >= 0)
    offset, duration = _cut_tasks(jobs, rules.tasks_per_job)
    known = bool(duration.any())
    scale = next((by for word, by in rules.duration_scales.items() if word in name), 1.0)
    least, most = rules.task_least, rules.task_most
    tokens = _token_durations(jobs, rules)
    if tokens is not None:
        duration, known, scale = tokens, True, 1.0
    if known:
        duration = np.clip(np.rint(duration * scale).astype(np.int64), least, most)
    stated = jobs.estimate > 0
    estimate = np.where(stated, np.clip(np.rint(jobs.estimate * scale).astype(np.int64), least, most), 0)
    return TraceStretch(
        name=name,
        arrival=jobs.arrival - int(jobs.arrival.min()),
        submission_offset=bounds,
        offset=offset,
        duration=duration,
        estimate=estimate,
        cpu=jobs.cpu,
        memory=jobs.memory,
        gpu=jobs.gpu,
        later=later[kept],
        earlier=earlier[kept],
        has_durations=known,
    )


def _cut_tasks(jobs: JobChunk, most: int) -> tuple[Ints, Ints]:
    """Return the bounds and durations of at most ``most`` tasks of each job, evenly spaced among its own."""
    counts = jobs.counts()
    kept = np.minimum(counts, most)
    offset = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    rank = np.arange(int(offset[-1])) - np.repeat(offset[:-1], kept)
    chosen = np.repeat(jobs.offset[:-1], kept) + rank * np.repeat(counts, kept) // np.repeat(kept, kept)
    return offset, jobs.duration[chosen]


def _token_durations(jobs: JobChunk, rules: WorkRules) -> Ints | None:
    """Return the durations of requests to a language model by their tokens; None for other traces."""
    if "ctx_tokens" not in jobs.extra or "gen_tokens" not in jobs.extra:
        return None
    context, generated = (np.maximum(jobs.extra[key], 0) for key in ("ctx_tokens", "gen_tokens"))
    rule = rules.tokens
    seconds: Floats = rule.base_seconds + rule.context_seconds * context + rule.generated_seconds * generated
    return np.repeat(
        np.rint(seconds * SECOND).astype(np.int64), np.minimum(jobs.counts(), rules.tasks_per_job)
    )


def _edges_and_depths(jobs: JobChunk) -> tuple[Ints, Ints, Ints]:
    """Return the usable edges, and for each job the number of jobs on its longest path of needs."""
    none = np.zeros(0, np.int64)
    later, earlier = (none, none) if jobs.needs is None else jobs.needs
    depth = _depths(jobs.job_count, later, earlier)
    usable = depth[later] < DAG_DEPTH_MAX
    if not usable.all():
        later, earlier = later[usable], earlier[usable]
        depth = _depths(jobs.job_count, later, earlier)
    return later, earlier, depth


def _depths(count: int, later: Ints, earlier: Ints) -> Ints:
    depth = np.zeros(count, np.int64)
    for _ in range(DAG_DEPTH_MAX):
        before = depth.copy()
        np.maximum.at(depth, later, depth[earlier] + 1)
        if np.array_equal(before, depth):
            break
    return depth
