"""A policy process for simulated brokers: it answers from a seed, and seldom as one would wish.

Its advice is often sensible (a size of the ladder, a cluster that the group reaches), sometimes absurd, late,
doubled or lost. Whatever it says, no promise of the league may break.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from hanse.model.advice import Advice, AdviceRequest, WaitingGroup
from hanse.model.effects import RequestAdvice
from hanse.model.ids import MILLISECOND, SECOND, JobId
from hanse.sim.world import World

DELAYS: Final = (1 * MILLISECOND, 1 * MILLISECOND, 20 * MILLISECOND, 300 * MILLISECOND, 8 * SECOND)
"""How long an answer may take; the longest is late for almost everybody."""
LOST: Final = 0.1
DOUBLED: Final = 0.1
ABSURD: Final = 0.1
PASSED: Final = 0.2
"""Shares of answers that never come or come twice, and of choices that make no sense or are left out."""

Advise = Callable[[tuple[int, tuple[Advice, ...]]], None]


class Adviser:
    """Answers one broker."""

    def __init__(self, world: World, rng: Random, advise: Advise) -> None:
        self._world = world
        self._rng = rng
        self._advise = advise

    def ask(self, effect: RequestAdvice) -> None:
        """A broker asks."""
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
