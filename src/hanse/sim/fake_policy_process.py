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
from hanse.sim.world import VirtualWorld

DELAYS: Final = (1 * MILLISECOND, 1 * MILLISECOND, 20 * MILLISECOND, 300 * MILLISECOND, 8 * SECOND)
"""Possible delays of an answer; the longest is too late in almost every league."""
LOSS_SHARE: Final = 0.1
DUPLICATE_SHARE: Final = 0.1
ABSURD_SHARE: Final = 0.1
OMITTED_SHARE: Final = 0.2
"""Shares of answers that are lost or duplicated, and of choices that are absurd or left out."""

AdviceHandler = Callable[[tuple[int, tuple[Advice, ...]]], None]


class FakePolicyProcess:
    """Fake policy process of one broker."""

    def __init__(self, world: VirtualWorld, rng: Random, on_advice: AdviceHandler) -> None:
        self._world = world
        self._rng = rng
        self._on_advice = on_advice

    def on_request(self, effect: RequestAdvice) -> None:
        """Answer a request for advice."""
        rng, world = self._rng, self._world
        choices = self._draw_choices(effect.request)
        if rng.random() < LOSS_SHARE:
            return
        for _ in range(2 if rng.random() < DUPLICATE_SHARE else 1):
            world.call_at(world.now + rng.choice(DELAYS), self._on_advice, (effect.number, choices))

    def _draw_choices(self, request: AdviceRequest) -> tuple[Advice, ...]:
        rng = self._rng
        chosen = [group for group in request.waiting if rng.random() >= OMITTED_SHARE]
        return tuple([self._draw_choice(request, group) for group in chosen])

    def _draw_choice(self, request: AdviceRequest, group: WaitingGroup) -> Advice:
        rng = self._rng
        size = rng.choice(group.sizes)
        where = (
            request.clusters[rng.choice(group.eligible_clusters)].cluster
            if group.eligible_clusters and rng.random() < 0.5
            else ""
        )
        advice = Advice(group.job, group.group, size.cpu, size.gpu, where)
        if rng.random() >= ABSURD_SHARE:
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
