"""What the network is trained on.

One setting and its streams per iteration, drawn from the seed and the iteration alone.
"""

from typing import Final, Literal

import msgspec
import numpy as np

from hanse.policy.edge.priced import PricedRule, Prices, compile_rule
from hanse.sim.edge import setting as settings
from hanse.sim.edge import speeds
from hanse.sim.edge.play import true_durations
from hanse.sim.edge.setting import Setting
from hanse.sim.edge.speeds import SpeedBook
from hanse.sim.edge.streams import Streams, make_streams

Course = Literal["fixed", "randomised"]

STREAMS_FROM: Final = 10_000_000
"""Training streams are numbered from here on; evaluation uses lower numbers."""

_SIZES: Final = (4, 8, 12, 16, 20, 24)


class Lesson(msgspec.Struct, frozen=True, eq=False):
    """One iteration's setting, streams (replicas of a stream next to each other) and rule."""

    setting: Setting
    streams: Streams
    rule: PricedRule


def lesson(
    base: Setting, course: Course, seed: int, iteration: int, replicas: int, rows: int = 288
) -> Lesson:
    """The lesson of an iteration, of about ``rows`` episodes times clusters."""
    rng = np.random.default_rng([seed, iteration])
    setting = base if course == "fixed" else randomised(base, rng)
    setting = msgspec.structs.replace(setting, sticky_pass=True)
    groups = max(rows // (setting.clusters * replicas), 2)
    first = STREAMS_FROM + (seed * 100_000 + iteration) * 64
    seeds = [first + group for group in range(groups) for _ in range(replicas)]
    return Lesson(setting=setting, streams=make_streams(setting, seeds), rule=rule_of(setting))


def rule_of(setting: Setting) -> PricedRule:
    """The priced rule on the setting's true durations."""
    return compile_rule(true_durations(setting), setting.book.minimum, Prices())


def randomised(base: Setting, rng: np.random.Generator) -> Setting:
    """Half of the time the base at another load; else other clusters, and half of those with other speeds."""
    if rng.random() < 0.5:
        return msgspec.structs.replace(base, arrival_rate=base.arrival_rate * rng.uniform(0.8, 1.2))
    clusters = int(rng.integers(2, 6))
    sizes = rng.choice(_SIZES, size=clusters)
    book, work = base.book, 12.0
    if rng.random() < 0.5:
        book, work = stretched(rng)
    load = rng.uniform(0.6, 0.88)
    return Setting(
        name="randomised",
        capacity=tuple((int(size), int(size)) for size in sizes),
        arrival_rate=float(load * sizes.sum() / work),
        book=book,
    )


def stretched(rng: np.random.Generator) -> tuple[SpeedBook, float]:
    """The synthetic kinds with other speeds, and the mean GPU-steps of a task at its cheapest size."""
    plain = speeds.synthetic()
    flat, steep = rng.uniform(0.14, 0.5), rng.uniform(0.7, 1.5)
    scale = np.array([flat / 0.25, steep])[:, None, None]
    book = msgspec.structs.replace(plain, rate=plain.rate * scale, base=plain.base * scale)
    steps = speeds.durations(book)
    steps = np.where(np.isfinite(steps), steps, speeds.DURATION_MAX)
    work = (steps[:, :, 1:] * np.arange(1, steps.shape[2])).min(axis=(1, 2))
    return book, float(work.mean())


def validation(name: str) -> tuple[Setting, list[int]]:
    """A setting and streams to judge a network on while it trains; not used for anything else."""
    made = {"syn3": settings.syn3, "hetero6": settings.hetero6}[name]()
    return made, list(range(9_000_000, 9_000_000 + (48 if name == "syn3" else 16)))
