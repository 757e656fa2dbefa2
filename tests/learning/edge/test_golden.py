"""Replays of hand-made action sequences give the states that the definition of the environment gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse.learning.edge.env import speeds
from hanse.learning.edge.env.policy_interface import NONE, Choice
from hanse.learning.edge.env.setting import Setting
from hanse.learning.edge.env.streams import Streams
from hanse.learning.edge.env.world import EdgeWorld, StepResult

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))


def built(story: dict[str, Any]) -> EdgeWorld:
    tasks, clusters = story["tasks"], len(story["capacity"])
    setting = Setting(
        name="golden",
        capacity=tuple((c, g) for c, g in story["capacity"]),
        arrival_rate=1.0,
        speed_table=speeds.synthetic_speeds(),
        multi=story["multi"],
        corrected=story["corrected"],
        window=story["window"],
        tasks_per_cluster=len(tasks) // clusters,
    )
    connected = np.array([[[n in task["reach"] for n in range(clusters)] for task in tasks]])
    streams = Streams(
        seed=np.array([1]),
        arrival=np.array([[task["arrival"] for task in tasks]]),
        kind=np.array([[task["kind"] for task in tasks]]),
        connected=connected,
        home=connected.argmax(axis=2),
    )
    return EdgeWorld(setting, streams)


def chosen(round_: dict[str, Any]) -> Choice:
    rows = [(NONE, 0, 0, 0.0) if one is None else tuple(one) for one in round_["choose"]]
    return Choice(
        slot=np.array([[row[0] for row in rows]]),
        cpus=np.array([[row[1] for row in rows]]),
        gpus=np.array([[row[2] for row in rows]]),
        preference=np.array([[float(row[3]) for row in rows]]),
    )


def check(world: EdgeWorld, expect: dict[str, Any], stepped: StepResult | None = None) -> None:
    s = world.state
    seen = {"time": s.time[0], "slots": s.pend[0], "queued": s.queued[0], "free": s.free[0]}
    if stepped is not None:
        seen |= {"reward": stepped.reward[0], "conflicts": stepped.conflicts[0]}
    for name, value in seen.items():
        if name in expect:
            assert value.tolist() == expect[name], name
    for task, finish in expect.get("finish", {}).items():
        assert s.finish[0, int(task)] == finish
    running = {int(task): s.progress[0][s.run[0] == task][0] for task in s.run[0].ravel() if task != NONE}
    for task, progress in expect.get("progress", {}).items():
        assert running[int(task)] == pytest.approx(progress, abs=2e-6)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_replay(path: Path) -> None:
    story = json.loads(path.read_text())
    world = built(story)
    check(world, story["start"])
    for round_ in story["rounds"]:
        check(world, round_["expect"], world.step(chosen(round_)))


def test_durations_of_the_sensitive_kind() -> None:
    steps = speeds.durations(speeds.synthetic_speeds())
    assert steps[1, 2, 1:].tolist() == [21, 10, 7, 5, 4, 4, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2]
    assert (steps[0, 2:, 1:] == 4).all()
    assert np.isinf(steps[:, :2]).all()
    assert np.isinf(steps[:, :, 0]).all()


def test_ten_tenths_take_eleven_steps_unless_corrected() -> None:
    book = speeds.short_and_long_speeds()
    assert speeds.durations(book)[1, 3, 3] == 11
    assert speeds.durations(book, 1e-9)[1, 3, 3] == 10
