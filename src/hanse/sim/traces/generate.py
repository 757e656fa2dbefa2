"""Generated traces: Poisson arrivals, and job sizes and durations as in published traces.

A family is one or more classes of jobs. A class has two tables of quantiles, one for the number of tasks and
one for a job's mean task duration; between the quantiles the logarithm is interpolated linearly. With
probability ``tied_share`` a job takes both at the same quantile, else independently: that sets how much work
the large jobs have. A task's duration is its job's mean times a log-normal factor of mean 1. All tables were
measured on the traces named in ``source``.

The load is met exactly: the seeded stream is made twice, first to add up its work, then to yield it with
arrivals scaled so that work / (last arrival - first arrival) = load x nodes. So memory holds one block of
jobs.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from hanse.sim.traces.chunk import SECOND, TIME_MAX, Ints, JobChunk
from hanse.sim.traces.read_report import TraceError

JOBS_PER_BLOCK: Final = 256
"""Jobs made at a time; each block has a random stream of its own, so that any block can be made again."""
JOBS_MAX: Final = 1 << 40
Floats = npt.NDArray[np.float64]


class GeneratedJobClass(msgspec.Struct, frozen=True):
    """Class of similar jobs. The tables give the values at the quantiles ``at``."""

    share: float
    """Share of all jobs in this class."""
    at: tuple[float, ...]
    tasks: tuple[int, ...]
    seconds: tuple[float, ...]
    """Mean task duration of a job."""
    tied_share: float
    """Share of jobs whose size and duration have the same rank."""


class TraceFamily(msgspec.Struct, frozen=True):
    """Family of workloads."""

    name: str
    description: str
    source: str
    """Source of the figures."""
    classes: tuple[GeneratedJobClass, ...]
    spread: float
    """Standard deviation of the logarithm of a task's duration within its job."""


_FINE: Final = (0, 0.05, 0.1, 0.25, 0.5, 0.67, 0.75, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 1)
_PLAIN: Final = (0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)

GOOGLE_LIKE: Final = TraceFamily(
    "google-like",
    "two thirds of the jobs have one task, one in a hundred has a thousand; durations from 11 s to days",
    "measured on the first 10,000 jobs of the Google 2011 trace (Reiss, Wilkes, Hellerstein 2011, CC-BY)",
    (
        GeneratedJobClass(
            share=1.0,
            at=_FINE,
            tasks=(1, 1, 1, 1, 1, 2, 5, 16, 21, 63, 188, 446, 953, 992, 2_319, 4_950),
            seconds=(
                11.4,
                22.3,
                30,
                62,
                98.6,
                172,
                249,
                501,
                981,
                1_650,
                2_580,
                3_810,
                8_510,
                14_300,
                44_000,
                326_000,
            ),
            tied_share=0.029,
        ),
    ),
    spread=0.06,
)
YAHOO_LIKE: Final = TraceFamily(
    "yahoo-like",
    "nine of ten jobs are short and small; the tenth holds 98 % of the work in hundreds of long tasks",
    "measured on the Yahoo sub-trace of 2,910 jobs published with the Megha simulator;"
    " short and long are parted at a mean task of 90.5811 s",
    (
        GeneratedJobClass(
            share=0.90515,
            at=_PLAIN,
            tasks=(1, 2, 3, 7, 15, 29, 49, 63, 100, 1_324),
            seconds=(0.0489, 1.47, 2.56, 5.62, 13.5, 26.7, 42.5, 54.4, 77.5, 90.6),
            tied_share=0.009,
        ),
        GeneratedJobClass(
            share=0.09485,
            at=_PLAIN,
            tasks=(1, 2, 3, 8, 24, 250, 742, 1_117, 2_068, 3_035),
            seconds=(91.7, 114, 155, 335, 717, 1_470, 2_620, 3_930, 6_330, 17_300),
            tied_share=0.032,
        ),
    ),
    spread=0.376,
)
FACEBOOK_LIKE: Final = TraceFamily(
    "facebook-like",
    "jobs of about 80 tasks, sizes and durations nearly exponential",
    "measured on the synthetic Facebook trace of 2,000 jobs published with the Megha simulator",
    (
        GeneratedJobClass(
            share=1.0,
            at=_FINE,
            tasks=(1, 6, 12, 30, 63, 94, 113, 144, 167, 204, 245, 266, 302, 331, 445, 612),
            seconds=(
                2.54,
                9.77,
                19.8,
                55.1,
                132,
                214,
                275,
                402,
                503,
                721,
                879,
                1_030,
                1_330,
                1_640,
                2_050,
                3_420,
            ),
            tied_share=0.018,
        ),
    ),
    spread=0.048,
)
FAMILIES: Final = {family.name: family for family in (GOOGLE_LIKE, YAHOO_LIKE, FACEBOOK_LIKE)}
POISSON: Final = "poisson"
FAMILY_NAMES: Final = (POISSON, *FAMILIES)


class GeneratorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a generated trace."""

    family: str = POISSON
    jobs: int = 1_000
    load: float = 0.8
    """Work per second of the whole trace, as a share of the nodes' slots."""
    nodes: int = 1_000
    """Number of slots."""
    seed: int = 0
    tasks_per_job: int = 10
    """``poisson`` only: every job has this many tasks."""
    mean_seconds: float = 10.0
    """``poisson`` only: the mean of the exponential durations."""

    def find_fault(self) -> str:
        """Return the problem with the settings; empty if there is none."""
        if self.family not in FAMILY_NAMES:
            return f"there is no family {self.family!r}; choose one of: {', '.join(FAMILY_NAMES)}"
        if not 2 <= self.jobs <= JOBS_MAX:
            return (
                "a trace has at least two jobs: the load is work over the time between the first and the last"
            )
        if not (math.isfinite(self.load) and self.load > 0):
            return "the load is a number above 0, such as 0.8"
        if self.nodes < 1 or self.tasks_per_job < 1:
            return "there is at least one node, and one task in a job"
        if not (math.isfinite(self.mean_seconds) and 0 < self.mean_seconds < TIME_MAX / SECOND / 1_000):
            return "the mean duration is a number of seconds above 0"
        return ""


class _Block(msgspec.Struct):
    counts: Ints
    durations: Ints
    gaps: Floats
    """Exponential gaps of mean 1, before each job."""


def generate(settings: GeneratorSettings) -> Iterator[JobChunk]:
    """Return the chunks of a trace; equal settings give equal traces."""
    problem = settings.find_fault()
    if problem:
        raise TraceError(problem)
    work, gaps = 0.0, 0.0
    for number, block in enumerate(_blocks(settings)):
        work += float(block.durations.sum(dtype=np.float64))
        gaps += float(block.gaps.sum()) - (float(block.gaps[0]) if number == 0 else 0.0)
    return _chunks_at_scale(settings, work / (settings.load * settings.nodes) / gaps)


def _chunks_at_scale(settings: GeneratorSettings, scale: float) -> Iterator[JobChunk]:
    """Yield the chunks; ``scale``: microseconds of one mean gap."""
    job, clock = 0, 0.0
    for block in _blocks(settings):
        if job == 0:
            block.gaps[0] = 0.0
        moments = clock + np.cumsum(block.gaps)
        clock = float(moments[-1])
        jobs = len(block.counts)
        numbers = np.arange(job, job + jobs, dtype=np.int64)
        job += jobs
        zeros = np.zeros(jobs, np.int64)
        no_names = np.full(jobs, -1, np.int32)
        yield JobChunk(
            job=numbers,
            arrival=np.rint(moments * scale).astype(np.int64),
            offset=np.concatenate([np.zeros(1, np.int64), np.cumsum(block.counts)]),
            duration=block.durations,
            cpu=zeros,
            memory=zeros,
            gpu=zeros,
            estimate=zeros,
            user=no_names,
            group=no_names,
            site=no_names,
            parent=numbers,
        )


def _blocks(settings: GeneratorSettings) -> Iterator[_Block]:
    sample_jobs = (
        _poisson_sampler(settings)
        if settings.family == POISSON
        else _family_sampler(FAMILIES[settings.family])
    )
    for number, start in enumerate(range(0, settings.jobs, JOBS_PER_BLOCK)):
        jobs = min(JOBS_PER_BLOCK, settings.jobs - start)
        random = np.random.Generator(
            np.random.PCG64(np.random.SeedSequence((settings.seed % (1 << 64), number)))
        )
        gaps = random.standard_exponential(jobs)
        counts, seconds = sample_jobs(random, jobs)
        durations = np.clip(np.rint(seconds * SECOND), 1, TIME_MAX).astype(np.int64)
        yield _Block(counts, durations, gaps)


JobSampler = Callable[[np.random.Generator, int], tuple[Ints, Floats]]


def _poisson_sampler(settings: GeneratorSettings) -> JobSampler:
    def sample_jobs(random: np.random.Generator, jobs: int) -> tuple[Ints, Floats]:
        counts = np.full(jobs, settings.tasks_per_job, np.int64)
        return counts, random.standard_exponential(jobs * settings.tasks_per_job) * settings.mean_seconds

    return sample_jobs


def _family_sampler(family: TraceFamily) -> JobSampler:
    edges = np.cumsum([part.share for part in family.classes])[:-1]

    def sample_jobs(random: np.random.Generator, jobs: int) -> tuple[Ints, Floats]:
        which = np.searchsorted(edges, random.random(jobs), side="right")
        size, length, tie = random.random(jobs), random.random(jobs), random.random(jobs)
        counts, means = np.zeros(jobs, np.int64), np.zeros(jobs)
        for number, part in enumerate(family.classes):
            of_class = which == number
            duration_rank = np.where(tie < part.tied_share, size, length)[of_class]
            counts[of_class] = np.rint(_quantile(part.at, part.tasks, size[of_class])).astype(np.int64)
            means[of_class] = _quantile(part.at, part.seconds, duration_rank)
        factor = np.exp(family.spread * random.standard_normal(int(counts.sum())) - family.spread**2 / 2)
        return counts, np.repeat(means, counts) * factor

    return sample_jobs


def _quantile(at: tuple[float, ...], values: "tuple[float, ...]", share: Floats) -> Floats:
    return np.exp(np.interp(share, at, np.log(values)))
