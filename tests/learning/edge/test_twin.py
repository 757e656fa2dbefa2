"""The environment's arrays against a plain Python twin: the same choices, the same world, round by round."""

import importlib
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from hanse.learning.edge.env import setting as settings
from hanse.learning.edge.env.published_observation import observe
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import make_streams
from hanse.learning.edge.env.world import EdgeWorld

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def edge(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, which has the twin."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("edge")


CROWDED = msgspec.structs.replace(settings.hetero6(), name="crowded", arrival_rate=20.0)
"""More than the pending slots hold: queues fill and empty."""


@pytest.mark.parametrize("setting", [settings.syn3(), settings.hetero6(), CROWDED], ids=lambda s: s.name)
def test_arrays_and_twin_agree(setting: Setting, edge: ModuleType) -> None:
    seeds = [11, 12, 13]
    world = EdgeWorld(setting, make_streams(setting, seeds))
    twins = [edge.PlainEpisode(setting, seed) for seed in seeds]
    queued = 0
    for number in range(260):
        choice = edge.random_choice(world, number)
        answers = [edge.answers(choice, episode) for episode in range(len(seeds))]
        world.step(choice)
        seen = observe(world)
        for episode, (twin, answer) in enumerate(zip(twins, answers, strict=True)):
            twin.step(answer)
            assert world.state.free[episode].tolist() == twin.free
            assert world.state.pend[episode].tolist() == twin.pending
            assert world.state.queued[episode].tolist() == [len(queue) for queue in twin.queue]
            for n, (server, pending, running, mask) in enumerate(twin.observe()):
                assert seen.server[episode, n].tolist() == server
                assert seen.pending[episode, n].tolist() == pending
                assert seen.mask[episode, n].tolist() == mask
                going = seen.running[episode, n][world.state.run[episode, n] != -1]
                assert sorted(going.tolist()) == sorted(running)
        queued += int(world.state.queued.sum())
    assert [row.tolist() for row in world.state.finish] == [twin.finish for twin in twins]
    assert (world.state.finish >= 0).sum() > 100
    assert queued > 0
