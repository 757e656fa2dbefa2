"""Online estimates of durations from completed tasks while the priced rule runs.

From no knowledge to the rule's full strength.
"""

from typing import Final

import numpy as np

from hanse.learning.edge.env.keyed_random import derive_key, uniform
from hanse.learning.edge.env.policy_interface import NONE, Choice, EdgeView, Floats, Ints
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.env.world import EdgeWorld
from hanse.learning.edge.policies import duration_estimates, priced
from hanse.learning.edge.policies.duration_estimates import DurationEstimates

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
        self.estimates: DurationEstimates = duration_estimates.no_observations(
            len(setting.speed_table.names), setting.speed_table.limit
        )
        self._compile()

    def _compile(self) -> None:
        minimum = self.setting.speed_table.minimum
        steps = duration_estimates.estimate_durations(self.estimates, minimum)
        self.rule = priced.compile_rule(steps, minimum, self.prices)

    @property
    def observed_tasks(self) -> int:
        """Completed tasks so far."""
        return int(self.estimates.count.sum())

    def play(self, seed: int) -> float:
        """Play one episode; return its mean completion in steps."""
        world = EdgeWorld(self.setting, make_streams(self.setting, [seed]))
        recorded = np.zeros(self.setting.task_count, dtype=np.bool_)
        while world.unfinished[0]:
            view = world.view()
            choice = self._explore(
                priced.choose_in_turn(self.rule, view), view, seed, int(world.state.rounds[0])
            )
            if world.step(choice).moved[0]:
                self._learn(world, recorded)
        return float((world.state.finish - world.streams.arrival).mean())

    def _learn(self, world: EdgeWorld, recorded: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
        """Add the tasks completed since the last call."""
        s = world.state
        new = np.flatnonzero((s.finish[0] != NONE) & ~recorded & ~s.moved[0])
        if not len(new):
            return
        recorded[new] = True
        size = s.size[0, new]
        steps: Ints = s.finish[0, new] - s.begun[0, new]
        self.estimates = duration_estimates.with_completed(
            self.estimates, world.streams.kind[0, new], size[:, 0], size[:, 1], steps
        )
        self._compile()

    def _explore(self, choice: Choice, view: EdgeView, seed: int, round_: int) -> Choice:
        """Draw the number of GPUs of some starts until ``EXPLORE_TASKS`` tasks are completed."""
        if self.observed_tasks >= EXPLORE_TASKS:
            return choice
        key = derive_key(np.array([[seed]], dtype=np.uint64), view.time[:, None] * 64 + round_)
        key = derive_key(key, np.arange(choice.slot.shape[1])[None])
        slot = np.where(choice.slot != NONE, choice.slot, 0)
        kind = np.take_along_axis(view.kind, slot[..., None], axis=2)[..., 0]
        least = self.setting.speed_table.minimum[kind, 1]
        most = np.minimum(view.free[..., 1], self.setting.speed_table.limit[1])
        drawn = least + (uniform(derive_key(key, np.array([[1]]))) * np.maximum(most - least + 1, 1)).astype(
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
