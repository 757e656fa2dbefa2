"""What a choice is credited with: its distance from the group less what the backlog foretells."""

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hanse.learning.edge.env.policy_interface import Floats  # noqa: E402
from hanse.learning.edge.env.streams import make_streams  # noqa: E402
from hanse.learning.edge.network.features import encode  # noqa: E402
from hanse.learning.edge.policies.priced import shared_room  # noqa: E402
from hanse.learning.edge.training.domain_randomisation import rule_of  # noqa: E402 - after the check that torch is there
from hanse.learning.edge.training.net import EdgeNet, NetConfig  # noqa: E402
from hanse.learning.edge.training.policy_gradient import (  # noqa: E402
    RIDGE,
    PpoConfig,
    cost_to_go,
    critic_advantage,
    group_advantage,
)
from hanse.learning.edge.training.rollout import BACKLOG, backlog_of, collect  # noqa: E402
from tests.learning.edge.test_exported_network import SMALL, halfway  # noqa: E402


def test_a_backlog_is_what_was_in_hand_when_a_step_began() -> None:
    torch.manual_seed(1)
    rule, seeds = rule_of(SMALL), [1, 2, 3]
    memory = collect(EdgeNet(NetConfig()), SMALL, make_streams(SMALL, seeds), rule, torch.Generator())
    assert memory.backlog.shape == (*memory.cost.shape, BACKLOG)
    waiting, running, left, gpu_steps = np.moveaxis(memory.backlog, 2, 0)
    assert (waiting + running == memory.cost).all()
    assert (waiting[:, 0] == memory.cost[:, 0]).all(), "nothing runs before the first choice"
    assert running.max() >= 2
    assert ((left > 0) == (running > 0)).all()
    assert ((gpu_steps > 0) == (running > 0)).all()
    for e, cost in enumerate(memory.cost):  # the zero after its last step of time ends an episode's row
        assert not memory.backlog[e, np.flatnonzero(cost)[-1] + 1 :].any()


def test_a_backlog_counts_what_its_running_tasks_hold_and_for_how_long() -> None:
    world = halfway()
    rule, view = rule_of(world.setting), world.view()
    features = encode(rule, view, shared_room(view))
    in_system = world.state.arrived - world.state.done
    found = backlog_of(features, in_system)
    for e in range(world.episodes):
        left, gpus = [], []
        for n, slot in zip(*np.nonzero(view.run_task[e] >= 0), strict=True):
            at = (e, n, slot)
            whole = rule.durations[view.run_kind[at], view.run_cpus[at], view.run_gpus[at]]
            left.append(min(max(whole - view.run_elapsed[at], 1.0), 20.0) / 10)
            gpus.append(int(view.run_gpus[at]))
        assert len(set(gpus)) > 1
        held = sum(one * many for one, many in zip(left, gpus, strict=True))
        assert found[e] == pytest.approx([in_system[e] - len(left), len(left), sum(left), held])


def test_what_is_foreseen_and_the_advantage_are_those_of_a_plain_computation() -> None:
    torch.manual_seed(1)
    streams = make_streams(SMALL, [1, 1, 1, 2, 2, 2])
    memory = collect(EdgeNet(NetConfig()), SMALL, streams, rule_of(SMALL), torch.Generator().manual_seed(5))
    config = PpoConfig(gamma=0.8, group_trace=0.7)
    steps = memory.cost.shape[1]
    group = [range(e - e % 3, e - e % 3 + 3) for e in range(6)]

    def apart(column: Floats, e: int, t: int) -> Floats:
        return np.asarray(column[e, t] - sum(column[other, t] for other in group[e]) / 3)

    known = np.array([apart(memory.backlog, e, t) for e in range(6) for t in range(steps)])
    to_go = np.array(
        [
            sum(config.gamma ** (u - t) * apart(memory.cost, e, u) for u in range(t, steps))
            for e in range(6)
            for t in range(steps)
        ]
    )
    # a ridge is a fit with further rows: nothing is to come of a little of each column
    little = np.sqrt(RIDGE * len(known)) * np.eye(BACKLOG)
    weight = np.linalg.lstsq(np.vstack([known, little]), np.append(to_go, np.zeros(BACKLOG)), rcond=None)[0]
    expected = (known @ weight).reshape(6, steps)
    assert np.corrcoef(expected.ravel(), to_go)[0, 1] > 0.3
    advantage = group_advantage(memory, 3, config)
    for e, t, ours in zip(memory.episode, memory.time, advantage, strict=True):
        plain = 0.0
        for u in range(t, steps):
            later = expected[e, u + 1] if u + 1 < steps else 0.0
            surprise = apart(memory.cost, e, u) + config.gamma * later - expected[e, u]
            plain -= (config.gamma * config.group_trace) ** (u - t) * surprise
        assert ours == pytest.approx(plain)


def test_with_nothing_to_foresee_the_advantage_is_the_distance_from_the_group() -> None:
    torch.manual_seed(1)
    streams = make_streams(SMALL, [1, 1, 2, 2])
    memory = collect(EdgeNet(NetConfig()), SMALL, streams, rule_of(SMALL), torch.Generator().manual_seed(5))
    blind = msgspec.structs.replace(memory, backlog=np.zeros_like(memory.backlog))
    to_go = cost_to_go(memory.cost, 0.9)
    mean = to_go.reshape(2, 2, -1).mean(axis=1).repeat(2, axis=0)
    bare = (mean - to_go)[memory.episode, memory.time]
    whole = PpoConfig(group_trace=1.0)
    assert group_advantage(blind, 2, whole) == pytest.approx(bare)
    assert group_advantage(memory, 2, whole).std() < bare.std(), "what is foreseen is no surprise"


def test_a_perfect_critic_leaves_no_advantage() -> None:
    torch.manual_seed(1)
    memory = collect(EdgeNet(NetConfig()), SMALL, make_streams(SMALL, [1]), rule_of(SMALL), torch.Generator())
    config = PpoConfig()
    perfect = cost_to_go(memory.cost, config.gamma)[memory.episode, memory.time]
    advantage, target = critic_advantage(memory, perfect, config)
    assert np.abs(advantage).max() < 1e-9
    assert target == pytest.approx(perfect)
    off, _ = critic_advantage(memory, perfect + 1.0, config)
    assert np.abs(off).max() > 0.05
