"""Environments for other learners: a Gymnasium environment and a PettingZoo ``ParallelEnv``.

Importing this module needs the ``pettingzoo`` and ``gymnasium`` packages; nothing else in Hanse does. Each
adapter runs one episode at a time; a fast learner steps many through
:class:`hanse.learning.edge.env.world.EdgeWorld`.
"""

from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv  # type: ignore[import-untyped]  # it has no type marker

from hanse.learning.edge.env.policy_interface import NONE, Choice
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.env.world import EdgeWorld, StepResult
from hanse.learning.edge.network.features import (
    CLUSTER_FEATURES,
    RUNNING_FEATURES,
    TASK_FEATURES,
    Features,
    encode,
)
from hanse.learning.edge.policies.feature_table import SIZES_MAX
from hanse.learning.edge.policies.priced import shared_room
from hanse.learning.edge.training.domain_randomisation import rule_of
from hanse.learning.edge.training.train import named_setting

ROUNDS_MAX: Final = 20_000
"""Rounds after which an episode is truncated: a policy that passes for ever would never end it."""

Row = NDArray[np.float32]
Masks = tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.int8]]


class _Episode:
    """Episode and its observations, shared by both adapters."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.rule = rule_of(setting)
        self.slots = 0
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Begin a new episode on the stream of this seed."""
        self.world = EdgeWorld(self.setting, make_streams(self.setting, [seed]))
        self.slots = self.world.state.run.shape[2]
        self.rounds = 0
        self.observe()

    def observe(self) -> None:
        """Store the present view and features."""
        self.view = self.world.view()
        self.features: Features = encode(self.rule, self.view, shared_room(self.view))

    @property
    def width(self) -> int:
        """Floats in one cluster's observation."""
        own = CLUSTER_FEATURES + self.setting.window * TASK_FEATURES + self.slots * RUNNING_FEATURES
        return own + CLUSTER_FEATURES

    def observation_row(self, n: int) -> Row:
        """Return a cluster's own features and the mean of all clusters' features."""
        seen = self.features
        parts = [
            seen.cluster[0, n],
            seen.task[0, n].ravel(),
            seen.running[0, n].ravel(),
            seen.cluster[0].mean(axis=0),
        ]
        return np.concatenate(parts).astype(np.float32)

    def masks(self, n: int) -> Masks:
        """Return slots that may be chosen (the last is the pass, always), and sizes that fit into the free
        room."""
        slot = np.append(self.features.may_choose[0, n], True).astype(np.int8)
        sizes = np.arange(1, SIZES_MAX + 1)
        room = np.maximum(np.minimum(self.view.free[0, n], self.rule.limit), 1)
        return slot, (sizes <= room[0]).astype(np.int8), (sizes <= room[1]).astype(np.int8)

    def step(self, actions: list[tuple[int, int, int]]) -> StepResult:
        """Run one round.

        (slot or the pass, CPUs - 1, GPUs - 1) per cluster; sizes are brought into the valid range.
        """
        n = self.setting.clusters
        slot, size = np.full((1, n), NONE), np.zeros((1, n, 2), dtype=np.int64)
        for cluster, (chosen, cpus, gpus) in enumerate(actions):
            if chosen >= self.setting.window or not self.features.may_choose[0, cluster, chosen]:
                continue
            least = self.rule.minimum[self.view.kind[0, cluster, chosen]]
            most = np.minimum(self.view.free[0, cluster], self.rule.limit)
            slot[0, cluster] = chosen
            size[0, cluster] = np.clip(np.array([cpus + 1, gpus + 1]), least, most)
        self.rounds += 1
        choice = Choice(slot=slot, cpus=size[..., 0], gpus=size[..., 1], preference=np.zeros((1, n)))
        stepped = self.world.step(choice)
        self.observe()
        return stepped

    def reward(self, stepped: StepResult) -> float:
        """Return minus the tasks in the system, per cluster, where time advanced.

        Summed over an episode: minus total time.
        """
        in_system = float(self.world.state.arrived[0] - self.world.state.done[0])
        return -in_system / self.setting.clusters if stepped.moved[0] else 0.0

    @property
    def is_over(self) -> bool:
        """True if all tasks are done."""
        return not bool(self.world.unfinished[0])


class EdgeParallelEnv(ParallelEnv):  # type: ignore[misc]  # an untyped base class
    """Environment in which clusters choose at the same time; the reward is shared.

    Observation: ``{"observation": floats, "action_mask": (slots and pass, CPUs, GPUs)}``. Action: slot (the
    last is the pass), CPUs - 1, GPUs - 1. ``state()`` is everything, for central training.
    """

    metadata: dict[str, Any] = {"name": "hanse_edge_v1", "render_modes": []}  # noqa: RUF012 - the base's name and kind

    def __init__(self, setting: Setting | str = "syn3") -> None:
        """Make an environment for a setting, or for a published one by name."""
        chosen = named_setting(setting) if isinstance(setting, str) else setting
        self._episode = _Episode(chosen)
        self.possible_agents = [f"cluster_{n}" for n in range(chosen.clusters)]
        self.agents: list[str] = []
        self.render_mode = None
        self._next_seed = 0
        mask = spaces.Tuple(
            (
                spaces.MultiBinary(chosen.window + 1),
                spaces.MultiBinary(SIZES_MAX),
                spaces.MultiBinary(SIZES_MAX),
            )
        )
        seen = spaces.Box(-np.inf, np.inf, (self._episode.width,), np.float32)
        self.observation_spaces = {
            name: spaces.Dict({"observation": seen, "action_mask": mask}) for name in self.possible_agents
        }
        shape = np.array([chosen.window + 1, SIZES_MAX, SIZES_MAX])
        self.action_spaces = {name: spaces.MultiDiscrete(shape) for name in self.possible_agents}
        width = chosen.clusters * self._episode.width
        self.state_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return a cluster's observation space."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return a cluster's action space."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin the stream of this seed; without one, the next stream."""
        del options
        self._next_seed = self._next_seed if seed is None else seed
        self._episode.reset(self._next_seed)
        self._next_seed += 1
        self.agents = self.possible_agents[:]
        return self._observations(), {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Run one round of choices."""
        passing = (self._episode.setting.window, 0, 0)
        wanted = [tuple(int(x) for x in actions.get(name, passing)) for name in self.possible_agents]
        stepped = self._episode.step([(w[0], w[1], w[2]) for w in wanted])
        is_over, is_truncated = self._episode.is_over, self._episode.rounds >= ROUNDS_MAX
        names = self.agents
        reward = self._episode.reward(stepped)
        observed = self._observations()
        if is_over or is_truncated:
            self.agents = []
        lost = stepped.conflicts[0]
        return (
            observed,
            dict.fromkeys(names, reward),
            dict.fromkeys(names, is_over),
            dict.fromkeys(names, is_truncated and not is_over),
            {name: {"conflict": bool(lost[self.possible_agents.index(name)])} for name in names},
        )

    def state(self) -> Row:
        """Return the observations of all clusters."""
        return np.concatenate([self._episode.observation_row(n) for n in range(len(self.possible_agents))])

    def _observations(self) -> dict[str, Any]:
        return {
            name: {"observation": self._episode.observation_row(n), "action_mask": self._episode.masks(n)}
            for n, name in enumerate(self.possible_agents)
        }


class EdgeCentralEnv(gymnasium.Env[Row, NDArray[np.int64]]):
    """Environment with one decider for all clusters.

    ``info["action_mask"]`` holds the masks, cluster by cluster.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - the base's name and kind

    def __init__(self, setting: Setting | str = "syn3") -> None:
        """Make an environment for a setting, or for a published one by name."""
        chosen = named_setting(setting) if isinstance(setting, str) else setting
        self._episode = _Episode(chosen)
        width = chosen.clusters * self._episode.width
        self.observation_space = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        each = [chosen.window + 1, SIZES_MAX, SIZES_MAX]
        self.action_space = spaces.MultiDiscrete(np.array(each * chosen.clusters))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Row, dict[str, Any]]:
        """Begin the stream of this seed; without one, a stream drawn from the environment's generator."""
        super().reset(seed=seed, options=options)
        stream = seed if seed is not None else int(self.np_random.integers(1 << 31))
        self._episode.reset(stream)
        return self._state(), self._info()

    def step(self, action: NDArray[np.int64]) -> tuple[Row, float, bool, bool, dict[str, Any]]:
        """Run one round of choices of all clusters."""
        rows = np.asarray(action).reshape(-1, 3)
        stepped = self._episode.step([(int(a), int(b), int(c)) for a, b, c in rows])
        is_over, is_truncated = self._episode.is_over, self._episode.rounds >= ROUNDS_MAX
        return (
            self._state(),
            self._episode.reward(stepped),
            is_over,
            is_truncated and not is_over,
            self._info(),
        )

    def _state(self) -> Row:
        return np.concatenate(
            [self._episode.observation_row(n) for n in range(self._episode.setting.clusters)]
        )

    def _info(self) -> dict[str, Any]:
        return {"action_mask": [self._episode.masks(n) for n in range(self._episode.setting.clusters)]}


def register() -> None:
    """Register ``hanse/Edge-v1`` for ``gymnasium.make``."""
    if "hanse/Edge-v1" not in gymnasium.registry:
        gymnasium.register(id="hanse/Edge-v1", entry_point=f"{__name__}:EdgeCentralEnv")
