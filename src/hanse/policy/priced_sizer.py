"""Priced sizer: size of elastic tasks, from the durations of earlier tasks of their kind.

Every size between the least and the most has a cost: its believed duration, marked up by the price of what it
holds. The least cost wins. The believed duration of a size is the mean of the durations seen there, mixed
with a little of a curve ``a + b / width`` through all durations of the kind (width: GPUs where they vary,
else CPUs); before any, the user's profile, or a work that is nine tenths parallel. A size with few tries that
may be good is tried now and then. Large room is rare: after waiting as long as it would have run, a group is
asked for at the next smaller size, and so on; after waiting too long, at its least.

Ties: fewer GPUs, then fewer CPUs.
"""

from functools import lru_cache
from typing import Final

import msgspec

from hanse.model.ids import SECOND
from hanse.model.job import SpeedUp
from hanse.model.resources import Resources
from hanse.policy.interface import ElasticFacts, SizeChoice

GPU_PRICE: Final = 0.08
"""Mark-up per GPU held."""
CPU_PRICE: Final = 0.08
"""Mark-up for holding as many CPUs again as the least: enough to avoid a gain smaller than the noise."""
CPU_UNIT: Final = 10
"""Milli-CPU that count as the least where a task asks for fewer."""
PATIENCE: Final = 2.0
"""Greatest believed cost, relative to the best, at which a size with few tries is tried."""
TRY_EVERY: Final = 4
"""Completed tasks per try."""
TRIES: Final = 2
"""First tries of a size that looks good enough."""
TRIES_SHARE: Final = 16
"""Completed tasks per further try: an unlucky hour proves nothing."""
OBSERVED_MIN: Final = 3
"""Completed tasks of a kind, at two sizes or more, from which its curve is fitted."""
CURVE_WEIGHT: Final = 0.25
"""Weight of the curve in a size, in completed tasks."""
SERIAL_SHARE: Final = 0.1
"""Share of the work assumed not to gain from a larger size, before anything is known."""
WAIT_MAX: Final = 120
"""Seconds without room after which a group is asked for at its least, unless it would run longer than half of
that: then twice as long as it would run."""
WAIT_MIN: Final = 1
"""Least seconds that a group waits at a size: news of room and grants take time."""
CACHE_MAX: Final = 1_024
"""Cached answers: many groups of one kind ask the same."""
STEPS_MAX: Final = 16
"""Amounts of one resource to consider, doubling from the least to the most."""


class PricedSizer:
    """Sizer that takes the size with the least cost."""

    name = "priced"
    takes_advice = False
    model = ""

    def sizes_to_try(self, least: Resources, most: Resources | None) -> tuple[Resources, ...]:
        """Return the size chosen in advance; a gang, for which none is chosen, gets its least."""
        return (least,)

    def preferred_sizes(self, facts: ElasticFacts) -> tuple[SizeChoice, ...]:
        """Return all sizes, the one to ask for first, each with its reason."""
        return _rank_sizes(facts)


class NetworkSizer(PricedSizer):
    """Priced sizer whose choice the policy process may replace: the trained network, behind a guard."""

    name = "network"
    takes_advice = True
    model = "edge"


class SizeCost(msgspec.Struct, frozen=True):
    """Believed duration and cost of a size."""

    size: Resources
    duration: float
    """Microseconds."""
    cost: float
    """Duration in microseconds, marked up by the price of what the size holds."""


@lru_cache(maxsize=CACHE_MAX)
def rank_by_cost(facts: ElasticFacts) -> tuple[SizeCost, ...]:
    """Return all sizes, the least cost first; ties as above."""
    sizes = sizes_between(facts.least, facts.most)
    costs = [SizeCost(size, believed, _cost(facts, size, believed)) for size, believed in
             ((size, _estimate_duration(facts, size)) for size in sizes)]  # fmt: skip
    return tuple(sorted(costs, key=lambda one: (one.cost, one.size.gpu, one.size.cpu)))


def markup(least: Resources, size: Resources) -> float:
    """Return the factor by which the price of a size marks its duration up: 1 is no mark-up."""
    more = (size.cpu - least.cpu) / max(least.cpu, CPU_UNIT)
    return 1.0 + GPU_PRICE * size.gpu + CPU_PRICE * more


def explain_size(facts: ElasticFacts, size: Resources) -> str:
    """Explain a size that another policy chose: its believed duration, its cost, and the rule's own
    choice."""
    ranked = rank_by_cost(facts)
    chosen = next(other for other in ranked if other.size == size)
    count = next((s.count for s in facts.duration_stats if (s.cpu, s.gpu) == (size.cpu, size.gpu)), 0)
    known = f"seen {count} times" if count else "by the curve"
    text = f"{_size_text(size)} each: {chosen.duration / SECOND:.2f} s believed ({known}), "
    text += f"{chosen.cost / SECOND:.2f} with the price of what it holds "
    text += f"(+{markup(facts.least, size) - 1:.0%})"
    others = [other for other in ranked if other.size != size][:2]
    if ranked[0].size == size:
        text += "; the rule would take the same"
    for number, other in enumerate(others):
        verb = "the rule would take " if number == 0 and ranked[0].size != size else ""
        text += (
            f"; {verb}{_size_text(other.size)}: {other.duration / SECOND:.2f} s, {other.cost / SECOND:.2f}"
        )
    return text


@lru_cache(maxsize=CACHE_MAX)
def _rank_sizes(facts: ElasticFacts) -> tuple[SizeChoice, ...]:
    believed = {size: _estimate_duration(facts, size) for size in sizes_between(facts.least, facts.most)}
    ranked = sorted(believed, key=lambda size: (_cost(facts, size, believed[size]), size.gpu, size.cpu))
    if facts.waited_seconds >= max(WAIT_MAX, 2 * believed[ranked[0]] / SECOND):
        return (
            SizeChoice(
                facts.least, f"{_size_text(facts.least)} each: it has waited {facts.waited_seconds} s"
            ),
        )
    tried = {(seen.cpu, seen.gpu): seen.count for seen in facts.duration_stats}
    total = sum(tried.values())
    untried = None
    first = _size_after_waiting(facts.waited_seconds, ranked, believed)
    if first == ranked[0] and total and total % TRY_EVERY == 0:
        untried = _find_size_to_try(facts, ranked, believed, tried)
    if untried is not None:
        first = untried
    waited = (
        f"; smaller than the best: it has waited {facts.waited_seconds} s"
        if first not in (ranked[0], untried)
        else ""
    )
    ranked.remove(first)
    ranked.insert(0, first)
    return tuple(
        SizeChoice(
            size,
            _choice_reason(facts, size, believed, tried, size is untried) + (waited if size is first else ""),
        )
        for size in ranked
    )


def _size_after_waiting(waited: int, ranked: list[Resources], believed: dict[Resources, float]) -> Resources:
    """Return the best size that is small enough after waiting for so many seconds."""
    size = ranked[0]
    left = waited - max(WAIT_MIN, believed[size] / SECOND)
    while left >= 0:
        smaller = [
            other for other in ranked if other.gpu <= size.gpu and other.cpu <= size.cpu and other != size
        ]
        if not smaller:
            break
        size = smaller[0]
        left -= max(WAIT_MIN, believed[size] / SECOND)
    return size


def sizes_between(least: Resources, most: Resources) -> tuple[Resources, ...]:
    """Return all sizes: CPUs and GPUs doubling from the least to the most, in every combination."""
    sizes: dict[Resources, None] = {}
    for gpu in _steps(least.gpu, most.gpu, 1):
        for cpu in _steps(least.cpu, most.cpu, 1_000):
            share = max(_range_share(least.cpu, cpu, most.cpu), _range_share(least.gpu, gpu, most.gpu))
            memory = least.memory + int((most.memory - least.memory) * share)
            sizes[Resources(cpu, memory, gpu, least.custom)] = None
    return tuple(sizes)


def _steps(least: int, most: int, unit: int) -> list[int]:
    steps = [least]
    while steps[-1] < most and len(steps) < STEPS_MAX:
        steps.append(min(most, 2 * steps[-1] or unit))
    return steps


def _range_share(least: int, amount: int, most: int) -> float:
    return (amount - least) / (most - least) if most > least else 0.0


def _width(facts: ElasticFacts, cpu: int, gpu: int) -> float:
    """Return the amount that a task's speed is assumed to follow."""
    return max(1, gpu) if facts.most.gpu > facts.least.gpu else max(1, cpu) / 1_000


def _estimate_duration(facts: ElasticFacts, size: Resources) -> float:
    """Return the estimated duration of a task of this size, in microseconds."""
    curve = _curve(facts, size)
    for seen in facts.duration_stats:
        if (seen.cpu, seen.gpu) == (size.cpu, size.gpu):
            return (seen.total + CURVE_WEIGHT * curve) / (seen.count + CURVE_WEIGHT)
    return curve


def _curve(facts: ElasticFacts, size: Resources) -> float:
    """Return the duration of this size that other sizes suggest."""
    points = [
        (1.0 / _width(facts, seen.cpu, seen.gpu), seen.total / seen.count, seen.count)
        for seen in facts.duration_stats
    ]
    inverse = 1.0 / _width(facts, size.cpu, size.gpu)
    weight = sum(count for _, _, count in points)
    if weight >= OBSERVED_MIN and len({x for x, _, _ in points}) > 1:
        return max(1.0, _fit_line(points, weight, inverse))
    if facts.duration_stats:
        most = max(facts.duration_stats, key=lambda seen: (seen.count, seen.gpu, seen.cpu))
        known, at = most.total / most.count, (most.cpu, most.gpu)
    else:
        known, at = float(facts.duration or SECOND), (facts.least.cpu, facts.least.gpu)
    if facts.speed_up is not None:
        return known * _speed(facts.speed_up, *at) / _speed(facts.speed_up, size.cpu, size.gpu)
    reference = 1.0 / _width(facts, *at)
    one = 1.0 / _width(facts, facts.least.cpu, facts.least.gpu)
    return (
        known
        * (SERIAL_SHARE * one + (1 - SERIAL_SHARE) * inverse)
        / (SERIAL_SHARE * one + (1 - SERIAL_SHARE) * reference)
    )


def _fit_line(points: list[tuple[float, float, int]], weight: int, inverse: float) -> float:
    """Fit a line to the durations, over the inverse of the width; neither coefficient is ever negative."""
    mean_x = sum(x * count for x, _, count in points) / weight
    mean_y = sum(y * count for _, y, count in points) / weight
    spread = sum(count * (x - mean_x) ** 2 for x, _, count in points)
    slope = sum(count * (x - mean_x) * (y - mean_y) for x, y, count in points) / spread
    slope = min(max(0.0, slope), mean_y / mean_x)
    return mean_y + slope * (inverse - mean_x)


def _speed(profile: SpeedUp, cpu: int, gpu: int) -> float:
    """Return the profile's speed at a size: that of the largest point within it."""
    speeds = [speed for cpus, gpus, speed in profile.points if cpus <= cpu and gpus <= gpu]
    return max(speeds, default=1_000)


def _cost(facts: ElasticFacts, size: Resources, believed: float) -> float:
    return believed * markup(facts.least, size)


def _find_size_to_try(
    facts: ElasticFacts,
    ranked: list[Resources],
    believed: dict[Resources, float],
    tried: dict[tuple[int, int], int],
) -> Resources | None:
    """Return the most promising size with few tries."""
    limit = PATIENCE * _cost(facts, ranked[0], believed[ranked[0]])
    for size in ranked:
        few = tried.get((size.cpu, size.gpu), 0) < TRIES + sum(tried.values()) // TRIES_SHARE
        if few and _cost(facts, size, believed[size]) <= limit:
            return size
    return None


def _choice_reason(
    facts: ElasticFacts,
    size: Resources,
    believed: dict[Resources, float],
    tried: dict[tuple[int, int], int],
    untried: bool,
) -> str:
    count = tried.get((size.cpu, size.gpu), 0)
    known = "to learn how long it takes" if untried else f"seen {count} times" if count else "by the curve"
    cost = _cost(facts, size, believed[size])
    others = sorted(
        (other for other in believed if other != size),
        key=lambda other: (_cost(facts, other, believed[other]), other.gpu, other.cpu),
    )
    text = f"{_size_text(size)} each: {believed[size] / SECOND:.2f} s believed ({known}), "
    text += f"{cost / SECOND:.2f} with the price of what it holds"
    for other in others[:2]:
        cost = _cost(facts, other, believed[other])
        text += f"; {_size_text(other)}: {believed[other] / SECOND:.2f} s, {cost / SECOND:.2f}"
    return text


def _size_text(size: Resources) -> str:
    cpus = f"{size.cpu / 1_000:g} CPU" + ("" if size.cpu == 1_000 else "s")
    return f"{cpus} and {size.gpu} GPU" + ("" if size.gpu == 1 else "s") if size.gpu else cpus
