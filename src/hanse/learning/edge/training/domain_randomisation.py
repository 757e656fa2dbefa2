"""Domain randomisation: the setting and streams of each training iteration.

They are drawn from the seed and the iteration alone.
"""

from typing import Final, Literal

import msgspec
import numpy as np

from hanse.learning.edge.env import setting as settings
from hanse.learning.edge.env import speeds
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.speeds import SpeedTable
from hanse.learning.edge.env.streams import Streams, make_streams
from hanse.learning.edge.players.play import true_durations
from hanse.learning.edge.policies.priced import PricedRule, Prices, compile_rule

Curriculum = Literal["fixed", "randomised", "wide"]
"""Base setting alone; also other loads, clusters and speeds; also kinds of the test-bed's shape and
single-task mode."""

FIRST_TRAINING_STREAM: Final = 10_000_000
"""First number of the training streams; evaluation uses lower numbers."""

_SMALL: Final = (4, 8)
_SIZES: Final = (8, 12, 16, 20, 24)
"""GPUs of drawn clusters. One is small, because a network that has not seen such a cluster leaves tasks
waiting that can only run there."""


class TrainingIteration(msgspec.Struct, frozen=True, eq=False):
    """Setting, streams (replicas of a stream next to each other) and rule of one iteration."""

    setting: Setting
    streams: Streams
    rule: PricedRule


def make_iteration(
    base: Setting,
    curriculum: Curriculum,
    seed: int,
    iteration: int,
    replicas: int,
    rows: int = 288,
    drawn: float | None = None,
    base_share: float = 0.5,
) -> TrainingIteration:
    """Return the iteration with this number, of about ``rows`` episodes times clusters.

    ``drawn`` in [0, 1) selects the sort of setting; by default it is drawn. Below ``base_share`` it is the
    base.
    """
    rng = np.random.default_rng([seed, iteration])
    drawn = rng.random() if drawn is None else drawn
    setting = (
        base
        if curriculum == "fixed"
        else randomised_setting(base, rng, drawn, base_share, wide=curriculum == "wide")
    )
    groups = max(rows // (setting.clusters * replicas), 2)
    first = FIRST_TRAINING_STREAM + (seed * 100_000 + iteration) * 64
    seeds = [first + group for group in range(groups) for _ in range(replicas)]
    return TrainingIteration(setting=setting, streams=make_streams(setting, seeds), rule=rule_of(setting))


def rule_of(setting: Setting) -> PricedRule:
    """Return the priced rule on the setting's true durations."""
    return compile_rule(true_durations(setting), setting.speed_table.minimum, Prices())


def randomised_setting(
    base: Setting, rng: np.random.Generator, drawn: float, base_share: float, *, wide: bool
) -> Setting:
    """Return the base at another load in a share of iterations; else other clusters, half at other speeds.

    The wide curriculum also has kinds of the test-bed's shape, whose speed depends on CPUs, and some
    iterations in single-task mode.
    """
    if drawn < base_share:
        return msgspec.structs.replace(base, arrival_rate=base.arrival_rate * rng.uniform(0.8, 1.2))
    bench = wide and drawn < base_share + BENCH_SETTING_SHARE * (1.0 - base_share)
    setting = bench_setting(rng) if bench else other_clusters(base, rng)
    if wide and rng.random() < SINGLE_SHARE:
        # one start per cluster and step: the load must leave room for the waiting that this makes
        setting = msgspec.structs.replace(
            setting, multi=False, noise=0.2, arrival_rate=setting.arrival_rate * 0.75
        )
    return setting


BENCH_SETTING_SHARE: Final = 0.3
SINGLE_SHARE: Final = 0.15
"""Shares of the wide curriculum's iterations that are not the base."""


def other_clusters(base: Setting, rng: np.random.Generator) -> Setting:
    """Return three to five clusters of drawn sizes, the first one small; half with other speeds."""
    clusters = int(rng.integers(3, 6))
    sizes = np.concatenate([rng.choice(_SMALL, size=1), rng.choice(_SIZES, size=clusters - 1)])
    speed_table, work = base.speed_table, 12.0
    if rng.random() < 0.5:
        speed_table, work = scaled_speeds(rng)
    load = rng.uniform(0.6, 0.88)
    return Setting(
        name="randomised",
        capacity=tuple((int(size), int(size)) for size in sizes),
        arrival_rate=float(load * sizes.sum() / work),
        speed_table=speed_table,
    )


def bench_setting(rng: np.random.Generator) -> Setting:
    """Return clusters with about twice as many CPUs as GPUs, and kinds that need both; corrected mode."""
    clusters = int(rng.integers(2, 5))
    gpus = rng.choice((4, 6, 8, 12, 16), size=clusters)
    cpus = (gpus * rng.choice((1.5, 2.0, 2.5), size=clusters)).astype(np.int64)
    shapes = tuple(
        (
            float(np.exp(rng.uniform(np.log(30.0), np.log(300.0)))),
            float(rng.uniform(0.4, 0.9)),
            float(rng.uniform(0.0, 4.0)),
            float(rng.uniform(0.0, 12.0)),
            float(rng.uniform(0.7, 1.5)),
        )
        for _ in range(2)
    )
    flat = (float(rng.uniform(15.0, 60.0)), 0.0, 0.0, 0.0, 1.0)
    speed_table = speeds.bench_speeds(shapes=(*shapes, flat))
    load = rng.uniform(0.35, 0.6)
    return Setting(
        name="bench",
        capacity=tuple((int(c), int(g)) for c, g in zip(cpus, gpus, strict=True)),
        arrival_rate=float(load * gpus.sum() / least_work(speed_table)),
        speed_table=speed_table,
        noise=0.02,
        corrected=True,
    )


def least_work(speed_table: SpeedTable) -> float:
    """Return the mean over kinds of the GPU-steps of a task at its cheapest size."""
    steps = speeds.durations(speed_table)
    steps = np.where(np.isfinite(steps), steps, speeds.DURATION_MAX)
    work = (steps[:, :, 1:] * np.arange(1, steps.shape[2])).min(axis=(1, 2))
    return float(work.mean())


def scaled_speeds(rng: np.random.Generator) -> tuple[SpeedTable, float]:
    """Return the synthetic kinds with other speeds, and the mean GPU-steps of a task at its cheapest size."""
    plain = speeds.synthetic_speeds()
    flat, steep = rng.uniform(0.14, 0.5), rng.uniform(0.7, 1.5)
    scale = np.array([flat / 0.25, steep])[:, None, None]
    speed_table = msgspec.structs.replace(plain, rate=plain.rate * scale, base=plain.base * scale)
    return speed_table, least_work(speed_table)


VALIDATION_EPISODES: Final = {"syn3": 400, "hetero6": 32, "bench": 12}
"""Settings on which a network is validated during training, and episodes of each.

With 96 of `syn3` a ratio to the rule was off by up to 0.5 % from that with 400: as much as there is to gain;
with 192, which chose an iteration too early, by 0.14 % from that with 1,000.
"""


def validation_names(curriculum: Curriculum) -> tuple[str, ...]:
    """Return the settings that choose among the iterations of a run: those its curriculum covers."""
    return tuple(name for name in VALIDATION_EPISODES if name != "bench" or curriculum == "wide")


def validation_streams(name: str) -> tuple[Setting, list[int]]:
    """Return a setting and streams for validation during training; not used for anything else."""
    setting = {"syn3": settings.syn3, "hetero6": settings.hetero6, "bench": _bench_validation_setting}[name]()
    return setting, list(range(9_000_000, 9_000_000 + VALIDATION_EPISODES[name]))


def _bench_validation_setting() -> Setting:
    """Return the test-bed's kinds on unequal clusters."""
    return msgspec.structs.replace(settings.testbed3(), name="bench", capacity=((12, 6), (16, 8), (20, 10)))
