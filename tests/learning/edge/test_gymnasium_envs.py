"""The environment as PettingZoo and Gymnasium see it."""

import warnings

import msgspec
import numpy as np
import pytest

from hanse.learning.edge.env import setting as settings

SMALL = msgspec.structs.replace(settings.syn3(), tasks_per_cluster=6)


def test_pettingzoo_and_gymnasium_contracts() -> None:
    pytest.importorskip("pettingzoo")
    from gymnasium.utils.env_checker import check_env
    from pettingzoo.test import parallel_api_test  # type: ignore[import-untyped]  # no type marker

    from hanse.learning.edge.training.gymnasium_envs import EdgeCentralEnv, EdgeParallelEnv, register

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checkers warn of style; failures raise
        env = EdgeParallelEnv(SMALL)
        parallel_api_test(env, num_cycles=300)
        check_env(EdgeCentralEnv(SMALL), skip_render_check=True)
    register()
    observed, _ = env.reset(seed=3)
    assert env.observation_space("cluster_0").contains(observed["cluster_0"])
    assert env.state_space.contains(env.state())


def test_an_episode_through_the_adapter_ends_with_the_total_time_as_cost() -> None:
    pytest.importorskip("pettingzoo")
    from hanse.learning.edge.training.gymnasium_envs import EdgeParallelEnv

    env = EdgeParallelEnv(SMALL)
    observed, _ = env.reset(seed=5)
    total, rng = 0.0, np.random.default_rng(1)
    while env.agents:
        actions = {}
        for name in env.agents:
            slot = np.flatnonzero(observed[name]["action_mask"][0])[0]
            actions[name] = (slot, 1, int(rng.integers(16)))
        observed, reward, _, _, _ = env.step(actions)
        total += reward["cluster_0"] if env.agents or reward else 0.0
    world = env._episode.world
    assert (world.state.finish > 0).all()
    assert total < 0
