"""Online estimates of durations from completed tasks while the priced rule runs.

From no knowledge to the rule's full strength.
"""

from typing import Final

import numpy as np

from hanse.policy.edge import beliefs, priced
from hanse.policy.edge.beliefs import Beliefs
from hanse.policy.edge.draws import mixed, uniform
from hanse.policy.edge.view import NONE, Choice, Floats, Ints, View
from hanse.sim.edge.setting import Setting
from hanse.sim.edge.streams import make_streams
from hanse.sim.edge.world import World

EXPLORE: Final = 0.15
"""Share of starts with a drawn size until ``EXPLORE_TASKS`` tasks are completed."""

EXPLORE_TASKS: Final = 384
"""Completed tasks after which no size is drawn."""


class DurationLearner:
    """Rule on a table that every completed task improves; one league, one episode after another."""

    def __init__(self, setting: Setting, prices: priced.Prices | None = None) -> None:
        """Begin with the prior alone."""
        self.setting = setting
        self.prices = prices or priced.Prices()
        self.known: Beliefs = beliefs.unknowing(len(setting.book.names), setting.book.limit)
        self._compile()

    def _compile(self) -> None:
        minimum = self.setting.book.minimum
        steps = beliefs.believed_durations(self.known, minimum)
        self.rule = priced.compile_rule(steps, minimum, self.prices)

    @property
    def seen(self) -> int:
        """Completed tasks so far."""
        return int(self.known.count.sum())

    def play(self, seed: int) -> float:
        """Play one episode; return its mean completion in steps."""
        world = World(self.setting, make_streams(self.setting, [seed]))
        told = np.zeros(self.setting.tasks, dtype=np.bool_)
        while world.live[0]:
            view = world.view()
            choice = self._explored(
                priced.choose_priced(self.rule, view), view, seed, int(world.state.rounds[0])
            )
            if world.step(choice).moved[0]:
                self._learn(world, told)
        return float((world.state.finish - world.streams.arrival).mean())

    def _learn(self, world: World, told: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
        """Add the tasks completed since the last call."""
        s = world.state
        new = np.flatnonzero((s.finish[0] != NONE) & ~told & ~s.moved[0])
        if not len(new):
            return
        told[new] = True
        size = s.size[0, new]
        steps: Ints = s.finish[0, new] - s.begun[0, new]
        self.known = beliefs.with_completed(
            self.known, world.streams.kind[0, new], size[:, 0], size[:, 1], steps
        )
        self._compile()

    def _explored(self, choice: Choice, view: View, seed: int, round_: int) -> Choice:
        """Draw the number of GPUs of some starts until ``EXPLORE_TASKS`` tasks are completed."""
        if self.seen >= EXPLORE_TASKS:
            return choice
        key = mixed(np.array([[seed]], dtype=np.uint64), view.time[:, None] * 64 + round_)
        key = mixed(key, np.arange(choice.slot.shape[1])[None])
        slot = np.where(choice.slot != NONE, choice.slot, 0)
        kind = np.take_along_axis(view.kind, slot[..., None], axis=2)[..., 0]
        least = self.setting.book.minimum[kind, 1]
        most = np.minimum(view.free[..., 1], self.setting.book.limit[1])
        drawn = least + (uniform(mixed(key, np.array([[1]]))) * np.maximum(most - least + 1, 1)).astype(
            np.int64
        )
        draw = (uniform(key) < EXPLORE) & (choice.slot != NONE)
        return Choice(
            slot=choice.slot,
            cpus=choice.cpus,
            gpus=np.where(draw, np.minimum(drawn, most), choice.gpus),
            preference=choice.preference,
        )


def learning_curve(setting: Setting, episodes: int, repetitions: int, first_seed: int) -> Floats:
    """Return (repetitions, episodes) mean completions, each repetition starting from no knowledge."""
    out = np.zeros((repetitions, episodes))
    for repetition in range(repetitions):
        learner = DurationLearner(setting)
        for episode in range(episodes):
            out[repetition, episode] = learner.play(first_seed + repetition * 1_000 + episode)
    return out
