"""Fake policy process for simulated brokers: it answers from a seed, and often badly.

Its advice is often sensible (one of the group's sizes, a cluster that the group can use), sometimes absurd,
late, duplicated or lost. No advice may break a promise of the league.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from hanse.model.advice import Advice, AdviceRequest, WaitingGroup
from hanse.model.effects import RequestAdvice
from hanse.model.ids import MILLISECOND, SECOND, JobId
from hanse.sim.world import World

DELAYS: Final = (1 * MILLISECOND, 1 * MILLISECOND, 20 * MILLISECOND, 300 * MILLISECOND, 8 * SECOND)
"""Possible delays of an answer; the longest is too late in almost every league."""
LOST: Final = 0.1
DOUBLED: Final = 0.1
ABSURD: Final = 0.1
PASSED: Final = 0.2
"""Shares of answers that are lost or duplicated, and of choices that are absurd or left out."""

Advise = Callable[[tuple[int, tuple[Advice, ...]]], None]


class Adviser:
    """Fake policy process of one broker."""

    def __init__(self, world: World, rng: Random, advise: Advise) -> None:
        self._world = world
        self._rng = rng
        self._advise = advise

    def ask(self, effect: RequestAdvice) -> None:
        """Answer a request for advice."""
        rng, world = self._rng, self._world
        choices = self._choices(effect.request)
        if rng.random() < LOST:
            return
        for _ in range(2 if rng.random() < DOUBLED else 1):
            world.at(world.now + rng.choice(DELAYS), self._advise, (effect.number, choices))

    def _choices(self, seen: AdviceRequest) -> tuple[Advice, ...]:
        rng = self._rng
        chosen = [group for group in seen.waiting if rng.random() >= PASSED]
        return tuple([self._choice(seen, group) for group in chosen])

    def _choice(self, seen: AdviceRequest, group: WaitingGroup) -> Advice:
        rng = self._rng
        size = rng.choice(group.sizes)
        where = (
            seen.clusters[rng.choice(group.eligible_clusters)].cluster
            if group.eligible_clusters and rng.random() < 0.5
            else ""
        )
        advice = Advice(group.job, group.group, size.cpu, size.gpu, where)
        if rng.random() >= ABSURD:
            return advice
        return rng.choice(
            (
                Advice(advice.job, advice.group, advice.cpu + 1, advice.gpu, where),
                Advice(advice.job, advice.group, -1, 1 << 62, where),
                Advice(advice.job, 1 << 40, advice.cpu, advice.gpu, where),
                Advice(advice.job, -1, advice.cpu, advice.gpu, where),
                Advice(JobId(advice.job + 1), advice.group, advice.cpu, advice.gpu, where),
                Advice(advice.job, advice.group, advice.cpu, advice.gpu, "nowhere"),
            )
        )
