"""What real clusters add: each variant costs what it says, and nothing is lost or counted twice."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from hanse.learning.edge.env import setting as settings
from hanse.learning.edge.env.keyed_random import derive_key
from hanse.learning.edge.env.policy_interface import NONE
from hanse.learning.edge.env.setting import Variants
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.env.world import EdgeWorld
from hanse.learning.edge.players.play import play, priced_player
from hanse.learning.edge.policies.baselines import choose_random

SEEDS = list(range(40, 60))


def mean_with(variants: Variants) -> float:
    setting = msgspec.structs.replace(settings.syn3(), variants=variants, arrival_rate=2.0)
    return float(play(setting, make_streams(setting, SEEDS), priced_player(setting)).mean.mean())


def test_each_burden_costs_time() -> None:
    plain = mean_with(Variants())
    assert mean_with(Variants(interference=0.5)) > plain * 1.05
    assert mean_with(Variants(locality_steps=2)) > plain + 0.5
    assert mean_with(Variants(failure_rate=0.1, failure_share=0.5, checkpoint_loss=1.0)) > plain * 1.02
    assert mean_with(Variants(speed_scale=(0.5, 1.0, 1.0))) > plain * 1.05
    assert mean_with(Variants(speed_scale=(2.0, 2.0, 2.0))) < plain * 0.8


def test_a_lost_checkpoint_costs_more_than_a_kept_one() -> None:
    failing = Variants(failure_rate=0.1, failure_share=0.5)
    kept = mean_with(failing)
    assert mean_with(msgspec.structs.replace(failing, checkpoint_loss=1.0)) > kept


def test_deadlines_are_counted() -> None:
    tight = msgspec.structs.replace(settings.syn3(), variants=Variants(deadline_slack=1.0))
    loose = msgspec.structs.replace(settings.syn3(), variants=Variants(deadline_slack=4.0))
    streams = make_streams(tight, SEEDS)
    assert play(tight, streams, priced_player(tight)).late.mean() > 0.2
    assert play(loose, streams, priced_player(loose)).late.mean() < 0.05


def test_preempted_tasks_keep_their_checkpoint() -> None:
    setting = msgspec.structs.replace(settings.syn3(), variants=Variants(checkpoint_loss=0.1))
    world = EdgeWorld(setting, make_streams(setting, [1]))
    player = priced_player(setting)
    while not (world.state.progress > 0.3).any():
        player(world)
    running = world.state.run != NONE
    tasks, progress = world.state.run[running], world.state.progress[running]
    world.preempt(running)
    assert (world.state.run == NONE).all()
    assert (world.state.free[0] == world.capacity).all()
    assert world.state.saved[0, tasks] == pytest.approx(np.maximum(progress - 0.1, 0))
    shown = np.unique(world.state.pend[0])
    assert np.isin(tasks, shown).all()
    while world.unfinished[0]:
        player(world)
    assert (world.state.finish[0] > 0).all()


@given(
    seed=st.integers(0, 10_000),
    corrected=st.booleans(),
    multi=st.booleans(),
    sticky=st.booleans(),
    failure=st.sampled_from([0.0, 0.1]),
    capacity=st.lists(st.sampled_from([(4, 4), (8, 6), (16, 16), (5, 9)]), min_size=1, max_size=4),
)
@hypothesis_settings(max_examples=25, deadline=None)
def test_room_and_tasks_are_conserved(
    seed: int, corrected: bool, multi: bool, sticky: bool, failure: float, capacity: list[tuple[int, int]]
) -> None:
    setting = msgspec.structs.replace(
        settings.single3(),
        capacity=tuple(capacity),
        corrected=corrected,
        multi=multi,
        sticky_pass=sticky,
        tasks_per_cluster=8,
        window=3,
        variants=Variants(failure_rate=failure, locality_steps=1),
    )
    streams = make_streams(setting, [seed, seed + 1])
    world = EdgeWorld(setting, streams)
    key = derive_key(streams.seed.astype(np.uint64)[:, None], np.arange(len(capacity))[None])
    for round_ in range(120):
        s = world.state
        held = s.run_size.sum(axis=2)
        assert (s.free + held + s.down == world.capacity).all()
        assert (s.free >= 0).all()
        assert (s.queued == s.in_queue.sum(axis=2)).all()
        for e in range(2):
            running = s.run[e][s.run[e] != NONE]
            assert len(np.unique(running)) == len(running)
            waiting = np.unique(np.append(s.pend[e][s.pend[e] != NONE], np.nonzero(s.in_queue[e])[1]))
            assert not np.isin(waiting, running).any()
            assert s.done[e] + len(running) + len(waiting) == s.arrived[e]
            for n in range(len(capacity)):
                seen = s.pend[e, n][s.pend[e, n] != NONE]
                assert streams.connected[e, seen, n].all()
        view = world.view()
        world.step(
            choose_random(
                view,
                setting.speed_table.minimum,
                setting.speed_table.limit,
                derive_key(key, np.full((1, 1), round_)),
            )
        )
